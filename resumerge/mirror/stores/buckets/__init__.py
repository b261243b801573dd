"""Stores below a prefix of a bucket: `store` has the code of all kinds, and calls a `client`.

`s3`, `google` and `azure` are the kinds; `s3_uploads` sends files to S3 in parts. This room may
import `resumerge.buckets`, which has the requests that read, and `base`.
"""
