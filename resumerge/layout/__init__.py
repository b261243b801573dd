"""The layers and parts of a model, inferred from tensor names and config.json.

There are no tables of architectures, with two exceptions: the names of experts, which programs
spell differently (`expert_names`), and the settings that a config.json leaves to the model class
(`layer_rules/`).

`names` splits a tensor's name at its layer number, `layers` infers the stacks of layers, and
`counts` finds the key of config.json that counts each stack. `modules` divides a model into the
parts that a recipe can name, `vocabulary_tensors` finds the tensors with a row for every token, and
`groups` has the layers and kinds of tensors by which figures are summed.

`match` finds the prefixes by which the names of two models differ, and `canonical_names` has the
names that transformers gives to loaded tensors. `model_views` finds the tensors of all models of a
recipe by the names of one model. `sentence_modules` compares the modules of sentence-transformers.
`layer_lists` reads and writes the settings of config.json with an entry for each layer, and
`layer_settings` moves them to the layers that slices choose.

This room reads no weights. From `sources/` it imports only `sources/types.py`,
`sources/tied_names.py`, and `sources/tied_weights.py`; functions of the last file are also exported
here.
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
