"""Mixtures of experts: the experts of all models as tensors that are merged with each other.

Files hold the experts of a layer as packed tensors, or as matrices of each expert. `views.py` shows
every model in the one form that the recipe merges, with the reference's names; `names.py` knows
what the forms are called, `packed_files.py` takes packed tensors apart, `packing.py` makes them of
separate matrices, and `written.py` gives the output the form that the reference has.
`extraction.py` shows a mixture as the dense model that one expert is.
"""
