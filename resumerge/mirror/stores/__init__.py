"""Stores: the places that a mirror can be in, behind one contract.

`base.Store` is the contract, `registry` knows every kind of store by its URL scheme, and
`conformance` has the checks that each kind must pass. A new kind is one class and its registration.
`folder` and `capabilities` are the store on a filesystem; `hub`, `hub_client`, `hub_names`,
`hub_uploads` and `upload_reader` the one on the Hub; `buckets/` has those in buckets of S3, Google
and Azure. Nothing outside of a store compares schemes or URLs.

May import: `hub`, `storage`, `errors`, `backup_names`; nothing else of `mirror`.
"""
