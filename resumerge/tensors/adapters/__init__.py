"""Weights that are changed by an adapter, and the matrices of adapters that a merge writes.

`adapted` has the changed weight, and `low_rank` adds an adapter's product to it with the same bits
on every machine. `both_matrices` has the base class of the matrices that are written: `factors`
finds those of the difference between a model and its base, and their rank; `combined` finds those
of several adapters.
"""
