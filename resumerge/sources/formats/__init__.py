"""Formats of weight files: one class for each, registered in `registry`.

A format says by which names its files are found, and reads their headers: where each tensor's data
stands. Local files and files on the Hub are read by the same code. No format may execute anything
from a file. May import `sources/types.py` and `sources/dtypes.py`, nothing else of `sources/`.
"""
