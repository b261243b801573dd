"""Models on the Hub and in buckets: a model's files, headers by range requests, and prefetching.

Requests, caches and downloads of single files are in `resumerge.remote`, `resumerge.hub` and
`resumerge.buckets`. May import these rooms, `sources/formats/` and the modules of `sources/` that
describe a model.
"""
