"""Files of models on servers, and their copies in a cache on the local disk.

`RemoteFile` is one file: the path of its copy, the requests for its bytes, and their comparison.
`RemoteModel` contains the files of one version of a model. This room has the code that is the same
for all kinds of remote files: downloads that continue after an interruption, ranges that are read
ahead and not stored (`forecast.py`), and the metadata cache. `hub/` and `buckets/` define the
kinds. This room does not interpret the content of files, and does not depend on runs.
"""
