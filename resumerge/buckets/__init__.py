"""Buckets of S3, Google and Azure: addresses, requests that read, files of models, their cache.

`sources/`, `recipe/` and `mirror/` use this room. The requests that write are in `mirror/`. The
libraries of the clouds are optional extras, so they are imported only inside of functions.
"""
