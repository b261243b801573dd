"""Files of models that are elsewhere, and their copies in a cache on this disk.

`RemoteFile` is one file: where its copy is, how its bytes are requested, and how they are compared.
`RemoteModel` is the files of one version of a model. Downloads, which continue where an earlier one
stopped, ranges that are read ahead (`forecast.py`) and not stored, and the metadata cache are the
same for all kinds of remote files. `hub/` and `buckets/` are the kinds. Nothing here knows what is
in a model's files, or of runs.
"""
