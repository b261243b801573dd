"""Stores: the places that can hold a mirror, behind one contract.

`base.Store` is the contract. `registry` maps each URL scheme to its kind of store. To add a kind,
write one class and register it; it has to pass the checks of `tests/support/store_conformance.py`.
`folder`, `plain_files` and `capabilities` are the store on a filesystem. `hub`, `hub_repo`,
`hub_client`, `hub_address`, `hub_uploads` and `upload_reader` are the store on the Hub. `buckets/`
contains the stores in buckets of S3, Google and Azure. No code outside of a store compares schemes
or URLs.

This room may import `ledger/file_names.py`, `hub`, `buckets`, `remote` and the rooms below them. It
imports nothing else from `mirror`.
"""
