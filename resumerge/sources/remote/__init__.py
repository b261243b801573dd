"""Models on the Hub and in buckets: a model's files, headers by range requests, and prefetching.

`hub` and `bucket` pin a model, and `model` opens it by the requests of `headers`. `files` finds a
model's files in the cache or downloads them, and `prefetch` downloads them while others are merged.
Requests, caches and downloads of single files are in `resumerge.remote`, `resumerge.hub` and
`resumerge.buckets`. May import these rooms, `sources/formats/` and the modules of `sources/` that
describe a model.
"""
