"""Buckets of S3: addresses, requests that read, and the files of models with their cache.

Serves `sources/`, `recipe/` and `mirror/`, which writes as well. boto3 is imported inside of
functions only: it is an extra.
"""
