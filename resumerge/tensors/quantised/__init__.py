"""Tensors that are computed from the numbers of quantised weights.

`codes.py` says what numbers codes stand for, `dequantised.py` scales them; `repacked.py` and
`transposed.py` bring what is packed or stored in columns into the order of a weight. `blocks.py`
decodes codes that lie in blocks with their scales.
"""
