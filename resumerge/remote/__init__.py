"""Files of models on servers, and their copies in a cache on the local disk.

This room has the code that is the same for all kinds of remote files; `hub/` and `buckets/` define
the kinds. `file.py` has `RemoteFile`, one file: the path of its copy, the requests for its bytes,
and their comparison. `model.py` has `RemoteModel`, the files of one version of a model.
`download.py` downloads a file and continues after an interruption. It appends to the file of
`partial_file.py`, and calls the functions of `callbacks.py`. `range_reader.py` reads ranges ahead
of their use, in the order that `forecast.py` predicts, and does not store them. `metadata_cache.py`
keeps listings, headers and the results of checks. `cache_errors.py` has the errors for a cache that
cannot be written to. `abandonable_threads.py` makes small requests in threads for which a signal
does not wait. This room does not interpret the content of files, and does not depend on runs.
"""
