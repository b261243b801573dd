"""What layers a model has, inferred from tensor names and config.json."""

from resumerge.layout.layers import LayerName, Layers, infer_layers
from resumerge.layout.ties import find_tensor, is_tied_copy

__all__ = ["LayerName", "Layers", "find_tensor", "infer_layers", "is_tied_copy"]
