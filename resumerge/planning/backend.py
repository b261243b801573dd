"""What the kernels compute, and what needs torch."""

from __future__ import annotations

from resumerge.tensors import Adapted, Computed, Merged, Tensor


def needs_torch(node: Tensor) -> bool:
    """Whether torch has to be loaded for a tensor: that takes a second, and 200 MB."""
    return isinstance(node, Adapted) or computes_with_torch(node)


def computes_with_torch(node: Tensor) -> bool:
    """Whether a method or a step computes a tensor with torch, which it can do on a GPU."""
    if isinstance(node, Computed):
        return "torch" in node.step.libraries
    return isinstance(node, Merged) and node.uses_torch
