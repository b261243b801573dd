"""Quantised outputs: the tensors of a plan that are written as codes and scales.

`weights.py` chooses the weights and quantises them in a given scheme. `alike.py` keeps the scheme
of the reference model.
"""
