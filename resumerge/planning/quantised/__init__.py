"""Quantised outputs: what ``out_dtype`` makes of the tensors that are planned.

`weights.py` chooses the weights and writes them in a scheme; `alike.py` keeps the scheme that the
reference model has.
"""
