"""Tensors that are computed from the numbers of quantised weights, and these numbers themselves.

`codes.py` says what numbers codes stand for, `dequantised.py` scales them; `repacked.py`,
`transposed.py` and `halved.py` bring what is packed, stored in columns or in pairs of rows into the
order of a weight. `blocks.py` decodes codes that lie in blocks with their scales. `quantised.py`
writes a weight as codes and scales.
"""
