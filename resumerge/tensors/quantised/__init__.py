"""Tensors that are decoded from quantised weights, and weights that are encoded as such.

`codes.py` has the numbers that codes stand for, and `dequantised.py` multiplies them by the scales
of blocks. `packed_blocks.py` decodes blocks that hold their codes and scales together.
`repacked.py`, `transposed.py` and `halved.py` bring packed numbers, transposed matrices and pairs
of rows into the order of a weight. `quantised.py` writes a weight as codes and scales.
"""
