"""Formats of weight files: one class for each, registered in `registry`.

A distributed checkpoint is not registered, because one file describes its whole folder.
`sources/model_files.py` recognises it by this file, `.metadata`, and `distributed.py` reads it.

A format declares the names of its files and reads their headers, which have the place of each
tensor's data; `weight_format.py` has the base class. The same code reads local and remote files. No
format may execute anything from a file: `restricted_unpickler.py` reads the pickles of torch. May
import `tensors/`, and of `sources/` only `types.py` and `json_object.py`.
"""
