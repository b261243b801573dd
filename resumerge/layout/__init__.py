"""The layers and parts of a model, inferred from tensor names and config.json.

There are no tables of architectures, with two exceptions: the names of experts, which programs
spell differently (`expert_names`), and the settings that a config.json leaves to the model class
(`layer_rules/`). `model_views` finds the tensors of all models of a recipe by the names of one
model. This room reads no weights. It imports `sources/types.py`, `sources/tied_names.py`, and
`sources/tied_weights.py`; functions of the last file are also exported here.
"""

from resumerge.layout.canonical_names import DOWNS, GATES, UPS, CanonicalNames
from resumerge.layout.layer_lists import read_layer_list, write_layer_list
from resumerge.layout.layer_settings import (
    SourceLayer,
    Unstated,
    layer_entries,
    mixed_settings,
    move_settings,
    section_at,
)
from resumerge.layout.layers import Layers, infer_layers, step_position
from resumerge.layout.match import match_names
from resumerge.layout.modules import ModulePart, find_parts, is_bridge
from resumerge.layout.names import LayerName, before_layers, collapse, listed, split
from resumerge.sources.tied_weights import find_tensor, is_computed, is_tied_copy, untied_head

__all__ = [
    "DOWNS",
    "GATES",
    "UPS",
    "CanonicalNames",
    "LayerName",
    "Layers",
    "ModulePart",
    "SourceLayer",
    "Unstated",
    "before_layers",
    "collapse",
    "find_parts",
    "find_tensor",
    "infer_layers",
    "is_bridge",
    "is_computed",
    "is_tied_copy",
    "layer_entries",
    "listed",
    "match_names",
    "mixed_settings",
    "move_settings",
    "read_layer_list",
    "section_at",
    "split",
    "step_position",
    "untied_head",
    "write_layer_list",
]
