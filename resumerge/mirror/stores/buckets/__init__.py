"""Stores below a prefix of a bucket: `store` has the code for every cloud, and calls a `client`.

`s3`, `google` and `azure` contain the client and store for each cloud. `s3_uploads` sends files to
S3 in parts. This room may import `base`, and `resumerge.buckets`, which has the requests that read.
"""
