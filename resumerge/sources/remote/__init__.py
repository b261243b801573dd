"""Models on the Hub and in buckets: a model's files, headers by range requests, and prefetching.

Requests, caches and downloads of single files belong to `resumerge.remote`, `resumerge.hub` and
`resumerge.buckets`. May import these, `sources/formats/` and the files of `sources/` that describe
a model.
"""
