"""Promise: config.json may have any values; a value of the wrong kind counts as absent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.config_json import class_names, model_type
from resumerge.layout.canonical_names import CanonicalNames
from resumerge.sources.tied_names import scales_outputs, tied_names, untied_config

NAMES = ["model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight"]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
keys = st.sampled_from(["model_type", "architectures", "tie_word_embeddings", "text_config"])


@given(st.dictionaries(keys, values))
def test_any_values_are_read(config: dict[str, Any]) -> None:
    assert isinstance(model_type(config), str)
    assert all(isinstance(name, str) for name in class_names(config))
    assert set(tied_names(config, NAMES).values()) <= set(NAMES)
    assert isinstance(scales_outputs(config), bool)
    assert untied_config(config).keys() >= config.keys()
    CanonicalNames(NAMES, config)


@pytest.mark.parametrize("odd", [None, [], ["llama"], {"a": 1}, 3, True])
def test_what_is_no_name_is_none(odd: object) -> None:
    assert model_type({"model_type": odd}) == ""
    assert class_names({"architectures": odd}) == (["llama"] if odd == ["llama"] else [])
