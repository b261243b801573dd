"""Weights that an adapter changes, and the matrices of adapters that a merge writes."""
