"""The settings that determine an adapter's merged weights, and their parser for PEFT's config."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from resumerge.errors import InputError, refuse

PROMPT_LEARNING = frozenset(
    {"PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "CPT", "CARTRIDGE"}
)
"""The PEFT types that add tokens but no weights, so they have nothing to merge."""

BASE_KEPT = ("gaussian", "eva", "orthogonal")
"""The named initialisations that keep the base model's weights. All others change these weights, so
their adapters do not fit the published base model."""

UNMERGEABLE: dict[str, str] = {
    "alora_invocation_tokens": "activated LoRA works on some tokens only",
    "arrow_config": "Arrow chooses between adapters for each token",
    "kasa_config": "KaSA changes the base model's weights",
    "monteclora_config": "MonteCLoRA samples its weights",
    "use_bdlora": "BD-LoRA has block-diagonal weights",
    "use_qalora": "QA-LoRA pools the inputs",
    "velora_config": "how weights of VeLoRA are merged is not known here",
    "layer_replication": "layers of the base model are used several times",
    "lora_bias": "the adapter's matrices have biases",
}
"""The options of LoRA that are not supported, each with the reason."""

_MERGE_WITH_PEFT = (
    "merge it with peft (PeftModel.from_pretrained, merge_and_unload, save_pretrained) and name "
    "the resulting folder in place of model+adapter"
)


TokenIndices = Sequence[int] | Mapping[str, Sequence[int]]
"""The tokens whose rows an adapter trains, in the order of the rows. A sequence is for the
embedding. A mapping has the tokens of each module by the ending of the module's name."""


@dataclass(frozen=True)
class LoraConfig:
    """The settings that determine an adapter's merged weights.

    Args:
        alpha: the numerator of the scale; None for a scale of 1.
        alpha_pattern: the numerators that replace `alpha`, by a pattern of module names.
        rslora: whether alpha is divided by the root of the rank (Kalajdzievski 2023,
            https://arxiv.org/abs/2312.03732) rather than by the rank.
        fan_in_fan_out: whether square weights are stored as (in, out).
        rank: the rank of every LoRA; None if the config does not state it.
        rank_pattern: the ranks that replace `rank`, by a pattern of module names.
        dora: whether every LoRA has a magnitude vector (Liu et al. 2024,
            https://arxiv.org/abs/2402.09353).
        modules_to_save: the endings of the names of modules whose tensors the adapter saves whole.
        bias: the biases that the adapter saves whole: ``none``, ``all``, or ``lora_only`` for those
            of adapted modules.
        task: the adapted model's task, in peft's word; None if the config does not state it.
        ties_weights: whether embedding and head are saved once, and tied when they are loaded.
        tokens: the tokens whose single rows are trained; empty if the config lists none.
        parameters: the endings of the names of parameters that the adapter changes by matrices.
    """

    alpha: float | None
    alpha_pattern: Mapping[str, float]
    rslora: bool
    fan_in_fan_out: bool
    dora: bool
    rank: float | None = None
    rank_pattern: Mapping[str, float] = field(default_factory=dict)
    modules_to_save: tuple[str, ...] = ()
    bias: str = "none"
    task: str | None = None
    ties_weights: bool = False
    tokens: TokenIndices = ()
    parameters: tuple[str, ...] = ()

    def scale(self, module: str, rank: int, *, alpha: float | None = None) -> float:
        """Return the factor of a module's ``B @ A``.

        Args:
            module: the module's name, which `alpha_pattern` may match.
            rank: the LoRA's rank as the shapes of its matrices show it; the config may state none.
            alpha: the numerator to use in place of the config's; None for the config's.
        """
        if alpha is None:
            alpha = _first_fitting(self.alpha_pattern, module, self.alpha)
        divisor = math.sqrt(rank) if self.rslora else rank
        return 1.0 if alpha is None else alpha / divisor

    def rank_of(self, module: str) -> float | None:
        """Return the rank that the config states for a module's LoRA; None if it states none."""
        return _first_fitting(self.rank_pattern, module, self.rank)


WITHOUT_CONFIG = LoraConfig(
    alpha=None, alpha_pattern={}, rslora=False, fan_in_fan_out=False, dora=False
)
"""The settings of an adapter without a config. Its alphas are tensors, or else equal the ranks."""


def _first_fitting(
    patterns: Mapping[str, float], module: str, default: float | None
) -> float | None:
    """Return the value of the first pattern that matches a module's name, or else the default."""
    matching_values = (
        value for key, value in patterns.items() if re.match(_of_module(key), module)
    )
    return next(matching_values, default)


def parse_adapter_config(config: Mapping[str, Any], where: str) -> LoraConfig:
    """Parse an adapter's adapter_config.json.

    Args:
        config: the parsed JSON.
        where: the file's name in messages.

    Raises:
        InputError: the adapter is not a LoRA, its variant is not supported, or a value is invalid.
    """
    kind = config.get("peft_type")
    if not isinstance(kind, str):
        raise _invalid(where, "an adapter_config.json with peft_type: LORA", f"peft_type {kind!r}")
    if kind != "LORA":
        raise refuse(
            f"{kind[:40]} adapters are not supported: only LoRA adapters are",
            where=where,
            expected="peft_type: LORA",
            found=f"peft_type: {kind[:40]}",
            fix=(
                "remove it from the recipe: it adds tokens to the prompt, and has no weights to "
                "merge"
            )
            if kind in PROMPT_LEARNING
            else _MERGE_WITH_PEFT,
        )
    for key, reason in UNMERGEABLE.items():
        if config.get(key):
            raise refuse(
                f"An option of this LoRA adapter is not supported: {reason}",
                where=where,
                expected=f"{key}: null",
                found=f"{key}: {str(config[key])[:60]}",
                fix=_MERGE_WITH_PEFT,
            )
    initialisation = config.get("init_lora_weights", True)
    if isinstance(initialisation, str) and not initialisation.lower().startswith(BASE_KEPT):
        raise refuse(
            "The adapter was trained on a changed copy of its base model",
            where=where,
            expected="an adapter for the base model as it was published",
            found=f"init_lora_weights: {initialisation[:40]}",
            fix="save it with path_initial_model_for_weight_conversion (peft), or "
            + _MERGE_WITH_PEFT,
        )
    return LoraConfig(
        alpha=finite_number(config.get("lora_alpha", 8), "lora_alpha", where),
        alpha_pattern=_by_pattern(config, "alpha_pattern", where),
        rslora=bool(config.get("use_rslora")),
        fan_in_fan_out=bool(config.get("fan_in_fan_out")),
        dora=bool(config.get("use_dora")),
        rank=None if config.get("r") is None else finite_number(config["r"], "r", where),
        rank_pattern=_by_pattern(config, "rank_pattern", where),
        modules_to_save=_words(config.get("modules_to_save"), "modules_to_save", where),
        bias=str(config.get("bias") or "none"),
        task=str(config["task_type"]) if config.get("task_type") else None,
        ties_weights=bool(config.get("ensure_weight_tying")) and _names_a_tie(config),
        tokens=_tokens(config.get("trainable_token_indices"), where),
        parameters=_words(config.get("target_parameters"), "target_parameters", where),
    )


def _by_pattern(config: Mapping[str, Any], key: str, where: str) -> dict[str, float]:
    """Return the numbers under a key of the config, by a pattern of module names."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, Mapping):
        raise _invalid(where, f"{key}: a mapping", type(patterns).__name__)
    return {
        _checked_pattern(pattern, where): finite_number(value, f"{key} of {pattern[:40]!r}", where)
        for pattern, value in patterns.items()
    }


def _tokens(value: Any, where: str) -> TokenIndices:
    token_lists = list(value.values()) if isinstance(value, Mapping) else [value or []]
    if not all(
        isinstance(token_list, list) and all(type(n) is int for n in token_list)
        for token_list in token_lists
    ):
        raise _invalid(where, "trainable_token_indices: lists of numbers", str(value)[:60])
    return dict(value) if isinstance(value, Mapping) else token_lists[0]


def _names_a_tie(config: Mapping[str, Any]) -> bool:
    """Return whether a config lists a module that peft recognises as an embedding or a head."""
    module_lists = [config.get(key) for key in ("modules_to_save", "target_modules")]
    listed_modules = [
        str(module)
        for value in module_lists
        for module in (value if isinstance(value, list) else [value])
    ]
    return any(
        module.rpartition(".")[2] in ("embed_tokens", "lm_head") for module in listed_modules
    )


def _words(value: Any, name: str, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise _invalid(where, f"{name}: a list of names", str(value)[:60])
    return tuple(word for word in value if word)


def finite_number(value: Any, name: str, where: str) -> float:
    """Return a value of an adapter's config as a float, after checking that it is finite.

    Args:
        value: the value as JSON has it; a text or a boolean is refused.
        name: the value's name in messages.
        where: the config's name in messages.

    Raises:
        InputError: the value is not a finite number.
    """
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise _invalid(where, f"{name}: a number", str(value)[:60])
    return number


_REPEATS = re.compile(r"[*+?{]")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
_REPETITION = 16
"""The number of ways to match that one repetition counts for."""
_MOST_WAYS = 100_000
"""The most ways in which a pattern may match one name. Trying all takes at most 0.1 seconds."""


def _of_module(pattern: str) -> str:
    """Return a pattern in the form in which peft matches it: against the end of a module's name."""
    return rf"(.*\.)?({pattern})$"


def _checked_pattern(text: str, where: str) -> str:
    """Return a pattern after checking that it is valid and matches fast (no ReDoS)."""
    try:
        re.compile(text)
        re.compile(_of_module(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid(
            where, "patterns that are regular expressions", f"{text[:60]!r}: {error}"
        ) from None
    if _REPEATED_GROUP.search(text) or len(_REPEATS.findall(text)) > 3:
        raise _invalid(
            where, "patterns without repeated groups, with 3 repetitions at most", text[:60]
        )
    if _log_ways(text) > math.log(_MOST_WAYS):
        raise _invalid(where, "patterns with fewer groups and alternatives", text[:60])
    return text


def _log_ways(text: str) -> float:
    """Return an upper bound of the natural logarithm of the number of ways to match a pattern.

    The numbers of alternatives of all groups are multiplied. Their product is largest if all groups
    have the same number.
    """
    groups = max(1, text.count("("))
    alternatives = groups * math.log1p(text.count("|") / groups)
    return alternatives + len(_REPEATS.findall(text)) * math.log(_REPETITION)


def _invalid(where: str, expected: str, found: str) -> InputError:
    return refuse(
        "The adapter's config is invalid",
        where=where,
        expected=expected,
        found=found,
        fix="download or save the adapter again",
    )
