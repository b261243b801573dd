"""Evaluating blocks: operands are read, a method computes, the result is rounded."""
