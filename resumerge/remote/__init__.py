"""Files of models that are elsewhere, and their copies in a cache on this disk.

`RemoteFile` is one file: the path of its copy, the requests for its bytes, and their comparison.
`RemoteModel` is the files of one version of a model. Three things are the same for all kinds of
remote files: downloads, which continue where an earlier one stopped; ranges that are read ahead and
not stored (`forecast.py`); and the metadata cache. The kinds are in `hub/` and `buckets/`. Nothing
here knows the content of a model's files, or of runs.
"""
