"""Buckets of S3, Google and Azure: addresses, requests that read, files of models, their cache.

Serves `sources/`, `recipe/` and `mirror/`, which writes as well. The libraries of the
clouds are imported inside of functions only: they are extras.
"""
