"""The names of a mixture's expert tensors in the files of different programs.

The names are facts of transformers 5 (`conversion_mapping.py`). It has its own names in addition to
those in the published models, and can save either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.config_json import model_type
from resumerge.layout.names import split
from resumerge.sources.types import Source

_NUMBER = re.compile(r"(^|\.)experts\.(\d+)\.")

Aliases = Mapping[str, Iterable[str]]
"""Other names of tensors; keys and values are the `rest` of a `Template`."""

Rewrites = tuple[tuple[re.Pattern[str], str], ...]


def _rewrites(*pairs: tuple[str, str]) -> Rewrites:
    return tuple((re.compile(pattern), to) for pattern, to in pairs)


_SAME = _rewrites(
    (r"^block_sparse_moe\.", "mlp."),
    (r"experts\.\{n\}\.w1\.", "experts.{n}.gate_proj."),
    (r"experts\.\{n\}\.w3\.", "experts.{n}.up_proj."),
    (r"experts\.\{n\}\.w2\.", "experts.{n}.down_proj."),
    (r"^mlp\.input_linear\.weight$", "mlp.experts.gate_up_proj"),
    (r"^mlp\.output_linear\.weight$", "mlp.experts.down_proj"),
    (r"^mlp\.router\.(layer\.)?weight$", "mlp.gate.weight"),
    (r"^mlp\.gate\.e_score_correction_bias$", "mlp.e_score_correction_bias"),
)
_W = _rewrites(
    (r"^mlp\.(gate|router)\.weight$", "block_sparse_moe.gate.weight"),
    (r"^mlp\.experts\.\{n\}\.gate_proj\.", "block_sparse_moe.experts.{n}.w1."),
    (r"^mlp\.experts\.\{n\}\.up_proj\.", "block_sparse_moe.experts.{n}.w3."),
    (r"^mlp\.experts\.\{n\}\.down_proj\.", "block_sparse_moe.experts.{n}.w2."),
    (r"^mlp\.experts\.", "block_sparse_moe.experts."),
)
_GRANITE = _rewrites(
    (r"^block_sparse_moe\.experts\.gate_up_proj$", "block_sparse_moe.input_linear.weight"),
    (r"^block_sparse_moe\.experts\.down_proj$", "block_sparse_moe.output_linear.weight"),
    (r"^block_sparse_moe\.router\.weight$", "block_sparse_moe.router.layer.weight"),
)
_PUBLISHED = {
    **dict.fromkeys(("mixtral", "minimax", "minimax_m2", "phimoe"), _W),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoehybrid"), _GRANITE),
}
"""The changes that turn transformers' names into the published names, by model type."""


@dataclass(frozen=True)
class Template:
    """A tensor's name in parts. `rest` is the same for all layers and experts.

    Args:
        layer: the beginning of the name, up to the layer's number and a dot; empty for a tensor
            outside the layers.
        rest: the text after `layer`, with ``{n}`` in place of the expert's number.
        expert: the expert's number; None if the tensor does not belong to a single expert.
    """

    layer: str
    rest: str
    expert: int | None

    @classmethod
    def of(cls, name: str) -> Template:
        layer, rest, layer_name = "", name, split(name)
        if layer_name is not None and layer_name.stack.rpartition(".")[2] != "experts":
            layer, rest = f"{layer_name.stack}.{layer_name.index}.", layer_name.rest
        number_match = _NUMBER.search(rest)
        if number_match:
            rest = f"{rest[: number_match.start(2)]}{{n}}{rest[number_match.end(2) :]}"
        return cls(layer, rest, int(number_match[2]) if number_match else None)

    def named(self, rest: str) -> str:
        """Return the name of another tensor of the same layer, and of the same expert."""
        return self.layer + rest.replace("{n}", str(self.expert))


def has_experts(source: Source) -> bool:
    """Return whether a tensor of a model belongs to an expert, or to all experts of a layer."""
    return any(".experts." in name or name.endswith("put_linear.weight") for name in source.tensors)


def common(rest: str) -> str:
    """Return the name that represents all names of the same tensor.

    Args:
        rest: the `rest` of a `Template`, with ``{n}`` for the expert's number.
    """
    return _rewritten(rest, _SAME)


def published(rest: str, config: Any) -> str:
    """Return the name in a model's published files; `rest` itself if the name is not changed.

    Args:
        rest: the `rest` of a `Template`, with ``{n}`` for the expert's number.
        config: the model's config.json, whose model type selects the published names.
    """
    return _rewritten(rest, _PUBLISHED.get(model_type(config), ()))


def other_names(name: str, source: Source, aliases: Aliases) -> tuple[str, ...]:
    """Return a tensor's other names: in its model's files, as published, and in transformers.

    Args:
        name: the tensor's name in `source`.
        source: the model, whose config.json selects the published names.
        aliases: the names in the model's files, by the names in `source`, where the two differ.
    """
    template = Template.of(name)
    rest = template.rest
    other_rests = (*aliases.get(rest, ()), published(rest, source.config), common(rest))
    return tuple(template.named(rest) for rest in other_rests)


def published_name(name: str, source: Source) -> str:
    """Return a tensor's published name, which is the key of its random masks in every layout."""
    template = Template.of(name)
    return template.named(published(template.rest, source.config))


def _rewritten(rest: str, rewrites: Rewrites) -> str:
    for pattern, replacement in rewrites:
        rest = pattern.sub(replacement, rest)
    return rest
