"""Weights that are changed by an adapter, and the matrices of adapters that a merge writes."""
