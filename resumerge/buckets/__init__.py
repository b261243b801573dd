"""Buckets of S3, Google and Azure: addresses, requests that read, files of models, their cache.

`address.py` recognises and splits addresses. `base.py` declares the requests that read a bucket,
and each cloud has a file that makes them: `s3.py`, `google.py` and `azure.py`. `ranges.py` has what
Google and Azure share, whose libraries cannot stream. `errors.py` has the errors for responses of
all clouds, and `s3_errors.py` translates those of boto3.

`model.py` lists the files of a model, and `file.py` has one file and its copy in the cache. They
make requests by `calls.py`, which opens buckets, retries and explains errors. `content_hash.py`
compares bytes with the server's hash.

`sources/`, `recipe/` and `mirror/` use this room. The requests that write are in `mirror/`. The
libraries of the clouds are optional extras, so they are imported only inside of functions.
"""
