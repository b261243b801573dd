"""Quantised outputs: the tensors of a plan that are written as codes and scales.

`weights.py` chooses the weights and writes them in a scheme; `alike.py` keeps the scheme that the
reference model has.
"""
