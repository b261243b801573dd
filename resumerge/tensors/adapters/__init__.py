"""Tensors that an adapter changes, and the sums of its factors' products."""
