"""Stores: the places that a mirror can be in, behind one contract.

`base.Store` is the contract, `registry` knows every kind of store by its URL scheme. A new kind is
one class and its registration, and passes the checks of `tests/support/store_conformance.py`.
`folder`, `plain_files` and `capabilities` are the store on a filesystem; `hub`, `hub_repo`,
`hub_client`, `hub_address`, `hub_uploads` and `upload_reader` the one on the Hub; `buckets/` has
those in buckets of S3, Google and Azure. Nothing outside of a store compares schemes or URLs.

This room may import `ledger/file_names.py`, `hub`, `buckets`, `remote` and below; nothing else of
`mirror`.
"""
