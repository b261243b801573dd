"""Quantised outputs: the tensors of a plan that are written as codes and scales.

`weights.py` chooses the weights and quantises them in a given scheme, and `like_reference.py` as
the reference model stores them. `quantised_output.py` has the result for the plan.
"""
