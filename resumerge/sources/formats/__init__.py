"""Formats of weight files: one class for each, registered in `registry`.

A distributed checkpoint is none of these, but a folder with one description of all its files:
`sources/model_files.py` recognises it by its `.metadata`, and `distributed.py` reads that.

A format declares the names of its files, and reads their headers: the place of each tensor's data.
The same code reads local files and files on the Hub. No format may execute anything from a file.
May import `sources/types.py`, `sources/json_object.py` and `tensors/`; nothing else of `sources/`.
"""
