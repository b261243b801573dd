"""Rules by which transformers' configuration classes derive the settings of each layer.

A config.json may leave the kind of each layer to its class: every sixth layer attends to all
tokens, the first three have no experts. Each rule here is a fact of one or several classes of
transformers: the name of the setting, its entries for a number of layers, and the keys from which
the class derives the entries. A test compares the rules with the classes.

`rule` has the type of a rule, and functions for common patterns. `attention` has the rules of full
attention and rotary positions, `experts` those of layers with experts, and `hybrids` those of
blocks of different kinds. `layer_sizes` has sizes that differ between layers, `shared_states` the
layers that read another layer's results, and `picked_layers` lists that select layers by number.
`numbered` has the settings that no key can state.
"""

from __future__ import annotations

from collections.abc import Sequence

from resumerge.layout.layer_rules import (
    attention,
    experts,
    hybrids,
    layer_sizes,
    numbered,
    picked_layers,
    shared_states,
)
from resumerge.layout.layer_rules.rule import RULES, LayerNumber, Rule, Section

__all__ = ["RULES", "LayerNumber", "Rule", "rules_of"]
_DECLARED = (attention, experts, hybrids, layer_sizes, shared_states, picked_layers, numbered)
"""The modules that add their rules to `RULES` when they are imported."""


def rules_of(section: Section, config: Section, path: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules for the layers that a section of config.json counts.

    Args:
        section: the (nested) mapping with the layer count.
        config: the whole config.json, whose model type counts if the section has none.
        path: the keys that lead from `config` to the section.
    """
    section_type = section.get("model_type")
    if not isinstance(section_type, str):
        section_type = (
            f"{config.get('model_type')}_{path[-1].removesuffix('_config')}" if path else None
        )
    for name in (section_type, f"{section_type}_text"):
        if name in RULES:
            return tuple(RULES[name])
    return ()
