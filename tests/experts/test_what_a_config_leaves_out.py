"""Promise: values that a model's config.json leaves out are the defaults of transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from resumerge.experts.extraction import dense_config
from resumerge.experts.upcycling.architectures.dense_defaults import complete

STATED = {"hidden_size": 4096, "num_attention_heads": 16}


def meant(config: Any, key: str) -> Any:
    """Return a config's value; transformers 5 keeps `rope_theta` among other parameters."""
    if key == "rope_theta":
        return config.rope_parameters["rope_theta"]
    return getattr(config, key)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_each_default_is_transformers_own(kind: str) -> None:
    config = AutoConfig.for_model(kind, **STATED)
    completed = complete({"model_type": kind, **STATED})
    for key, value in completed.items():
        assert value == meant(config, key), key
    assert len(completed) > len(STATED) + 8


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_heads_of_keys_that_are_null_are_those_of_the_queries(kind: str) -> None:
    stated = {"model_type": kind, **STATED, "num_key_value_heads": None}
    assert complete(stated)["num_key_value_heads"] == STATED["num_attention_heads"]


def test_an_expert_has_the_rotary_embeddings_that_its_mixture_states_or_means() -> None:
    """A base that is stated twice would be read from the wrong place."""
    stated = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}
    found = dense_config({"model_type": "mixtral", "rope_parameters": stated})
    assert found["rope_parameters"] == stated and "rope_theta" not in found
    assert dense_config({"model_type": "mixtral"})["rope_theta"] == 1e6
    assert dense_config({"model_type": "mixtral", "rope_theta": 10.0})["rope_theta"] == 10.0
