"""Stores: the places that a mirror can be in, behind one contract.

`base.Store` is the contract, `registry` knows every kind of store by its URL scheme, and
`conformance` has the checks that each kind must pass. A new kind is one class and its registration.
`folder` and `capabilities` are the store on a filesystem; `hub`, `hub_client`, `hub_names`,
`hub_uploads` and `upload_reader` the one on the Hub; `bucket` and `bucket_client` what buckets have
in common, `s3`, `s3_errors` and `s3_uploads` those of S3. Nothing outside of a
store compares schemes or URLs.

May import: `hub`, `storage`, `errors`, `backup_names`; nothing else of `mirror`.
"""
