"""Tensors that are decoded from quantised weights, and weights that are quantised.

- `codes.py` has the numbers that codes represent; `dequantised.py` multiplies them by the scales of
  blocks.
- `packed_blocks.py` decodes blocks that contain their codes and scales.
- `repacked.py`, `transposed.py` and `halved.py` bring packed numbers, transposed matrices and pairs
  of rows into the order of a weight.
- `quantised.py` writes a weight as codes and scales in a `form.py` that a scheme declares;
  `encoded.py` writes blocks of llama.cpp, and `interleaved.py` undoes `halved.py`.
"""
