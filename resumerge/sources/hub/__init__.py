"""Models on the Hub: a model's files at a commit, headers by range requests, and prefetching.

Requests, the cache and downloads of single files belong to `resumerge.hub`. May import that,
`sources/formats/` and the files of `sources/` that describe a model.
"""
