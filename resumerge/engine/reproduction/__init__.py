"""Making a published model again from its card, and comparing the two.

`original.py` reads the original: a folder, a Hub repo, or a place in a bucket. `comparison.py`
compares its files with those of the run that made it again. That run is like any other, with the
models pinned as the card says.
"""
