"""Buckets of S3, Google and Azure: addresses, requests that read, files of models, their cache.

`sources/`, `recipe/` and `mirror/` use them; `mirror/` writes as well. The libraries of the clouds
are imported inside of functions only: they are extras.
"""
