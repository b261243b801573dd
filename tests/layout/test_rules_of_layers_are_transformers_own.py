"""Promise: what a config leaves to its class is derived as the installed transformers derives it.

All configuration classes of transformers are built with several numbers of layers. If a class
derives a value from its layers without a rule here, the test fails with the name of the class.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import transformers.models
from transformers import PreTrainedConfig

from resumerge.layout import read_layer_list
from resumerge.layout.layer_rules import RULES, Rule

COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "depth")
LENGTHS = (6, 14)
VARIED = (0, 2, 3)
"""What numbers in a config that rules read are set to."""

FOLLOWING = {
    "layer_types and the like": {"per_layer_config"},  # where the class derives it from them
    "stages, moved by layer_settings": {"out_features", "out_indices", "stage_names"},
    "other layer counts": {"num_decoder_layers", "num_blocks", "num_layers_per_stack"},
    "set anew by the class": {"final_w_init_variance_scale", "encoder_sparse_step"},
    "set anew from out_indices": {"window_block_indexes"},
    "read by the rule of moe_layer_start_index": {"moe_layer_end_index"},
}
"""Attributes that change with the number of layers and need no rule of their own, with reasons."""


@cache
def classes() -> list[type[PreTrainedConfig]]:
    logging.disable(logging.CRITICAL)
    found: dict[str, type[PreTrainedConfig]] = {}
    folder = Path(str(transformers.models.__file__)).parent
    for file in sorted(folder.glob("*/configuration_*.py")):
        module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
        for name, cls in vars(module).items():
            own = inspect.isclass(cls) and cls.__module__ == module.__name__
            if own and issubclass(cls, PreTrainedConfig):
                found[f"{file.parent.name}.{name}"] = cls
    logging.disable(logging.NOTSET)
    return list(found.values())


def built(cls: type[PreTrainedConfig], **options: Any) -> PreTrainedConfig | None:
    """Return a config of a class with these options; None if the class refuses them."""
    logging.disable(logging.CRITICAL)
    try:
        return cls(**options)
    except Exception:
        return None
    finally:
        logging.disable(logging.NOTSET)


def written(config: PreTrainedConfig) -> dict[str, Any]:
    """Return a config as config.json has it."""
    return dict(json.loads(json.dumps(config.to_dict(), default=str)))


def counted(cls: type[PreTrainedConfig]) -> str | None:
    config = built(cls)
    values = config.to_dict() if config is not None else {}
    return next((key for key in COUNTS if type(values.get(key)) is int), None)


def cases(rule: Rule, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield options to compare: the defaults, and each number that the rule reads varied."""
    yield {}
    for key in rule.keys:
        if type(values.get(key)) is int or key in ("sliding_window_pattern", "moe_layer_freq"):
            yield from ({key: number} for number in VARIED)
        if type(values.get(key)) is bool:
            yield {key: True}


def entries(key: str, value: Any, count: int) -> list[Any] | None:
    if isinstance(value, Mapping):
        value = {str(int(number)): entry for number, entry in value.items()}
    return read_layer_list(key, list(value) if isinstance(value, tuple) else value, count)


def compared() -> Iterator[tuple[type[PreTrainedConfig], str, Rule]]:
    for cls in classes():
        key = counted(cls)
        for rule in RULES.get(cls.model_type, ()):
            if key is not None:
                yield cls, key, rule


def test_every_rule_is_of_a_class() -> None:
    assert set(RULES) <= {cls.model_type for cls in classes()}


def test_rules_give_what_the_classes_derive() -> None:
    wrong, asked = [], set()
    for cls, counted_by, rule in compared():
        if rule.name in ("mlp_only_layers", "kv_source_layers", "num_kv_shared_layers"):
            continue  # other entries than the key's; the models' own layers show these
        for count in LENGTHS:
            for options in cases(rule, written(cls())):
                config = built(cls, **{counted_by: count}, **options)
                if config is None or not hasattr(config, rule.name):
                    continue
                own = entries(rule.name, getattr(config, rule.name), count)
                stated = {k: v for k, v in written(config).items() if k not in _derived(cls)}
                if own is None:
                    continue
                asked.add((cls.model_type, rule.name))
                found = rule.entries({**stated, **options}, count)
                if all(isinstance(entry, bool) for entry in own):  # numbers of layers
                    found = [bool(entry) for entry in found or ()]
                if found != own:
                    wrong.append((cls.__name__, rule.name, count, options, own, found))
    assert not wrong, "\n".join(map(str, wrong[:10]))
    assert len(asked) > 120


def _derived(cls: type[PreTrainedConfig]) -> set[str]:
    return {rule.name for rule in RULES[cls.model_type]} - {"num_kv_shared_layers"}


def test_nothing_else_follows_the_number_of_layers() -> None:
    known = set().union(*FOLLOWING.values())
    unknown: dict[str, set[str]] = {}
    for cls in classes():
        key = counted(cls)
        if key is None:
            continue
        rules = {rule.name for rule in RULES.get(cls.model_type, ())}
        base = written(built(cls) or cls())
        for count in LENGTHS:
            config = built(cls, **{key: count})
            values = written(config) if config is not None else base
            found = {
                name
                for name, value in values.items()
                if name != key and value != base.get(name)
                if not isinstance(value, Mapping) or name == "per_layer_config"
            }
            if left := found - rules - known:
                unknown.setdefault(cls.__name__, set()).update(left)
    assert not unknown, f"no rule in layout/layer_rules: {unknown}"


STATED = {
    "what a stage is, by number": {"depths", "num_heads", "num_attention_heads", "hidden_sizes"},
    "follows the layer types or the number of experts of each layer": {"per_layer_config"},
    "another form of what the class reads": {"attention_layers", "hybrid_layer_ids"},
    "set anew by the class": {"window_block_indexes", "pretrained_window_sizes"},
}
"""Lists that are read as settings of layers and need no rule for a config without them."""


def test_lists_of_layers_with_a_default_of_their_own_have_a_rule() -> None:
    known = set().union(*STATED.values())
    unknown = set()
    for cls in classes():
        key = counted(cls)
        config = built(cls)
        if key is None or config is None:
            continue
        values = written(config)
        rules = {rule.name for rule in RULES.get(cls.model_type, ())}
        for name, value in values.items():
            if name in rules | known or value == ["basic", "bottleneck"]:  # of a ResNet
                continue
            if read_layer_list(name, value, values[key]) and value:
                unknown.add((cls.model_type, name))
    left = unknown - {("dots3_note_vision_encoder", "mlp_layer_types")}  # of pyramid_num_routed
    assert not left, f"no rule in layout/layer_rules for a config without them: {left}"


IN_MODELS = {
    "lists that a config states, cut by their form": {
        *("window_block_indexes", "window_block_indices", "attention_window", "num_experts"),
        *("moe_topk", "swiglu_limits", "swiglu_limits_shared"),
    },
    "properties of what rules move": {"kv_sharing_modes", "layers_num_experts"},
    "counted anew": {"num_hidden_layers"},
    "of convolutions and stages": {
        *("conv_dim", "conv_kernel", "conv_stride", "tdnn_dilation", "tdnn_dim", "tdnn_kernel"),
        *("decoder_dim", "depths", "embed_dim", "hidden_sizes", "mlp_ratios", "num_heads"),
        *("num_attention_heads", "patch_sizes", "sr_ratios", "strides", "upsample_rates"),
        *("upsample_initial_channel", "speech_decoder_postnet_layers", "resblock_stride_sizes"),
        *("resblock_dilation_sizes", "resblock_kernel_sizes"),
    },
}
"""What models read of their configs with a layer's number, and need no rule of its own."""
_NUMBER = {"layer_idx", "layer_id", "layer_index", "layer_number", "layer_num", "decoder_layer_idx"}


def read_with_a_layers_number() -> Iterator[tuple[str, str]]:
    """Yield (module, key) of what models index, compare or divide by with a layer's number."""
    folder = Path(str(transformers.models.__file__)).parent
    for file in sorted(folder.glob("*/modeling_*.py")):
        text = file.read_text("utf-8")
        if not any(name in text for name in _NUMBER):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare | ast.BinOp | ast.Subscript):
                inside = list(ast.walk(node))
                names = {n.id for n in inside if isinstance(n, ast.Name)}
                attributes = [n for n in inside if isinstance(n, ast.Attribute)]
                if not _NUMBER & (names | {n.attr for n in attributes}):
                    continue
                for found in attributes:
                    if ast.unparse(found.value) in ("config", "self.config"):
                        yield file.parent.name, found.attr


def test_models_read_nothing_else_with_a_layers_number() -> None:
    known = set().union(*IN_MODELS.values())
    for rules in RULES.values():
        known |= {key for rule in rules for key in (rule.name, *rule.keys)}
    unknown = {found for found in read_with_a_layers_number() if found[1] not in known}
    assert not unknown, f"no rule in layout/layer_rules: {sorted(unknown)}"


@pytest.mark.parametrize("letters", ["M-M*", "EM*-"])
def test_letters_are_nemotrons_blocks(letters: str) -> None:
    [cls] = [c for c in classes() if c.model_type == "nemotron_h"]
    [rule] = RULES["nemotron_h"]
    own = cls(hybrid_override_pattern=letters).layers_block_type
    assert rule.entries({"hybrid_override_pattern": letters}, 4) == own
