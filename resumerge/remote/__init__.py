"""Files of models that are elsewhere, and their copies in a cache on this disk.

`RemoteFile` is one file: where its copy is, how its bytes are requested, and how they are compared.
Downloads, which continue where an earlier one stopped, ranges that are read ahead and not stored,
and the metadata cache are the same for all kinds of remote files. `hub/` and `buckets/` are the
kinds. Nothing here knows of models or runs.
"""
