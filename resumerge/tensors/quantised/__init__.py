"""Tensors that are computed from the numbers of quantised weights, and these numbers themselves.

`codes.py` says what numbers codes stand for, `dequantised.py` scales them, also by blocks of a
grid; `repacked.py`, `transposed.py` and `halved.py` bring what is packed, stored in columns or in
pairs of rows into the order of a weight. `packed_blocks.py` decodes blocks that hold their codes
and scales together. `quantised.py` writes a weight as codes and scales.
"""
