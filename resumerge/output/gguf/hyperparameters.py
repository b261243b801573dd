"""The hyperparameters in a GGUF file, from config.json: the inverse of `sources/gguf/config.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.output.gguf.header import Value
from resumerge.sources.gguf.config import LARGE_GEMMAS
from resumerge.sources.gguf.families import WRITTEN
from resumerge.sources.gguf.rope import LONG, OF_LLAMA, ORIGINAL, SHORT

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of tensors, by transformers' names."""

_ACTIVATIONS = {
    "gemma": ("gelu_pytorch_tanh", "gelu", None),
    "gemma2": ("gelu_pytorch_tanh",),
    "gemma3_text": ("gelu_pytorch_tanh",),
}
"""The activations that llama.cpp supports, by model type. Other families must have SiLU. (Gemma's
first configs state gelu, which transformers treats as the approximation by tanh.)"""

_FULL_ATTENTION = {"gemma2": 2, "gemma3_text": 6}
"""The period of layers with full attention that llama.cpp assumes: every n-th layer."""

_YARN = {"beta_fast": 32, "beta_slow": 1, "attention_factor": None, "truncate": True}
"""The values that llama.cpp assumes for further settings of yarn. Other values are refused."""

_EMBEDDING = "model.embed_tokens.weight"

_ALIASES = {"num_experts": "num_local_experts", "num_local_experts": "num_experts"}
"""The alternative names of keys in config.json, which transformers 5 writes for some families."""

_NO_DEFAULT = "a value: what transformers takes otherwise is not known here"


class Hyperparameters:
    """The hyperparameters of a model.

    Args:
        model: the model's name in the recipe, for messages.
        config: the content of the model's config.json.
        shapes: the shapes of the model's tensors, by their names in transformers.

    Attributes:
        architecture: llama.cpp's name of the architecture.
        family: the family of the model.

    Raises:
        InputError: llama.cpp does not support the family, or config.json does not fit the shapes.
    """

    def __init__(self, model: str, config: Mapping[str, Any], shapes: Shapes) -> None:
        self.model, self._config, self._shapes = model, config, shapes
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in WRITTEN:
            raise refuse(
                "A model of this type cannot be written as GGUF",
                where=f"{model}: config.json",
                path="model_type",
                expected=", ".join(WRITTEN),
                found=repr(kind)[:60],
                fix="name a folder as output, and convert it with llama.cpp's own script",
            )
        self.architecture, self.family = WRITTEN[kind]
        if len(shapes.get(_EMBEDDING, ())) != 2:
            raise self.unfit("model_type", f"a model with a matrix {_EMBEDDING}", kind)
        self.head = self._head()
        self.heads = self._whole("num_attention_heads")
        self.keys = self._keys()

    @property
    def is_tied(self) -> bool:
        """Whether the head is tied to the embedding, and therefore not stored."""
        usual = self.architecture.startswith("gemma")
        return bool(self._config.get("tie_word_embeddings", usual))

    @property
    def experts(self) -> int:
        """The number of experts in a layer; 0 for a dense model."""
        found = self.values().get(f"{self.architecture}.expert_count", 0)
        assert isinstance(found, int)
        return found

    def unfit(self, key: str, expected: str, found: object) -> InputError:
        """Return the error for a value of config.json that GGUF or llama.cpp does not support.

        Args:
            key: the key in config.json, with dots between the keys of nested objects.
            expected: the supported values.
            found: the present value; None if the key is missing.
        """
        return refuse(
            "The model's config.json says what a GGUF file, or llama.cpp, cannot",
            where=f"{self.model}: config.json",
            path=key,
            expected=expected,
            found="no such key" if found is None else repr(found)[:100],
            fix="correct config.json if it is wrong; otherwise name a folder as output",
        )

    def values(self) -> dict[str, Value]:
        """Return the metadata about the architecture, by GGUF key.

        Raises:
            InputError: a value is missing, or llama.cpp does not support it.
        """
        config, family = self._config, self.family
        self._check()
        rotated_dimensions = self._rope_dimensions
        metadata: dict[str, Value] = {
            "context_length": self._whole("max_position_embeddings"),
            "embedding_length": self._whole("hidden_size"),
            "block_count": self._whole("num_hidden_layers"),
            "feed_forward_length": self._whole("intermediate_size"),
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.keys,
            "attention.layer_norm_rms_epsilon": self._number("rms_norm_eps"),
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "rope.dimension_count": rotated_dimensions,
            "rope.freq_base": self._theta,
            "vocab_size": self._shapes[_EMBEDDING][0],
            **self._scaled_positions(),
        }
        for key, name in family.numbers.items():
            value = config.get(key, config.get(_ALIASES.get(key, "")))
            if key == "rope_local_base_freq":
                value = value or _section(config.get("rope_parameters"), "sliding_attention").get(
                    "rope_theta", 10000.0
                )
            if self.architecture == "phi3" and value is None:
                value = 0  # no window
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.unfit(key, "a number", value)
            is_float = name.endswith(("softcapping", "freq_base_swa"))
            metadata[name] = float(value) if is_float else value
        return {f"{self.architecture}.{name}": value for name, value in metadata.items()}

    def factors(self) -> dict[str, tuple[float, ...]]:
        """Return the divisors of RoPE's frequencies, by the name of the tensor that stores them.

        Source: transformers, modeling_rope_utils.py.
        """
        rope, kind = self._rope, self._rope_type
        if kind in ("longrope", "su"):
            return {
                LONG: self._list(rope, "long_factor"),
                SHORT: self._list(rope, "short_factor"),
            }
        if kind != "llama3":
            return {}
        low_factor, high_factor, factor, original_length = (
            self._of_rope(key, default)
            for key, default in (
                ("low_freq_factor", 1.0),
                ("high_freq_factor", 4.0),
                ("factor", 8.0),
                ("original_max_position_embeddings", ORIGINAL),
            )
        )
        divisors = []
        for number in range(0, self.head, 2):
            wavelength = 2 * math.pi * self._theta ** (number / self.head)
            unscaled_share = min(
                1.0,
                max(0.0, (original_length / wavelength - low_factor) / (high_factor - low_factor)),
            )
            divisors.append(1 / ((1 - unscaled_share) / factor + unscaled_share))
        return {OF_LLAMA: tuple(divisors)}

    def notes(self) -> Iterator[str]:
        """Yield sentences about settings that llama.cpp handles differently from transformers."""
        config, kind = self._config, str(self._config.get("model_type"))
        window = config.get("sliding_window")
        uses_window = config.get("use_sliding_window", kind in ("mistral", "mixtral", "phi3"))
        if window and uses_window and not kind.startswith("gemma"):
            yield (
                f"{self.model}: attention has a window of {window} tokens, which llama.cpp leaves "
                f"out for {self.architecture}: with longer texts its results differ"
            )

    @property
    def _rope_dimensions(self) -> int:
        """The number of dimensions of a head that RoPE rotates."""
        rotated_share = self._rope.get(
            "partial_rotary_factor", self._config.get("partial_rotary_factor")
        )
        if rotated_share in (None, 1, 1.0):
            return self.head
        if self.family.model_type != "phi3" or type(rotated_share) is not float:
            raise self.unfit("partial_rotary_factor", "1, for this family", rotated_share)
        return int(self.head * rotated_share)

    @property
    def _rope(self) -> Mapping[str, Any]:
        """The settings of RoPE in config.json, as written by any version of transformers."""
        rope_settings = (
            self._config.get("rope_parameters") or self._config.get("rope_scaling") or {}
        )
        if not isinstance(rope_settings, Mapping):
            raise self.unfit("rope_scaling", "an object", rope_settings)
        return _section(rope_settings, "full_attention") or rope_settings

    @property
    def _rope_type(self) -> str:
        found = self._rope.get("rope_type") or self._rope.get("type") or "default"
        return str(found)

    @property
    def _theta(self) -> float:
        theta = self._rope.get("rope_theta") or self._config.get("rope_theta") or self.family.theta
        if type(theta) not in (int, float) or not 0 < theta < math.inf:
            raise self.unfit("rope_theta", "a number above 0", theta)
        return float(theta)

    def _scaled_positions(self) -> dict[str, Value]:
        rope, kind = self._rope, self._rope_type
        if kind in ("default", "llama3"):
            return {}
        if kind == "linear":
            return {
                "rope.scaling.type": "linear",
                "rope.scaling.factor": self._of_rope("factor"),
            }
        if kind == "yarn":
            for key, usual_value in _YARN.items():
                if rope.get(key, usual_value) not in (usual_value, None):
                    raise self.unfit(f"rope_scaling.{key}", repr(usual_value), rope[key])
            return {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": self._of_rope("factor"),
                "rope.scaling.original_context_length": int(
                    self._of_rope("original_max_position_embeddings")
                ),
            }
        if kind in ("longrope", "su") and self.family.model_type == "phi3":
            longest_context = self._whole("max_position_embeddings")
            original_context = self._original()
            scale = longest_context / original_context
            attention_factor = (
                math.sqrt(1 + math.log(scale) / math.log(original_context)) if scale > 1 else 1.0
            )
            return {
                "rope.scaling.type": "longrope",
                "rope.scaling.original_context_length": original_context,
                "rope.scaling.attn_factor": attention_factor,
            }
        raise self.unfit("rope_scaling", "linear, yarn, llama3, or longrope of Phi 3", kind)

    def _original(self) -> int:
        key = "original_max_position_embeddings"
        length = self._rope.get(key) or self._config.get(key)
        if type(length) is not int or length <= 1:
            raise self.unfit(key, "a whole number", length)
        return length

    def _of_rope(self, key: str, default: float | None = None) -> float:
        value: Any = self._rope.get(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.unfit(f"rope_scaling.{key}", "a number above 0", value)
        return float(value)

    def _list(self, rope: Mapping[str, Any], key: str) -> tuple[float, ...]:
        factors, expected_count = rope.get(key), self._rope_dimensions // 2
        if not isinstance(factors, list) or len(factors) != expected_count:
            raise self.unfit(f"rope_scaling.{key}", f"a list of {expected_count} numbers", factors)
        return tuple(map(float, factors))

    def _head(self) -> int:
        """Return the number of dimensions of a head."""
        if self._config.get("head_dim") is not None:
            return self._whole("head_dim")
        hidden_size, head_count = self._whole("hidden_size"), self._whole("num_attention_heads")
        if head_count > hidden_size:
            raise self.unfit("num_attention_heads", f"at most {hidden_size}", head_count)
        return hidden_size // head_count

    def _keys(self) -> int:
        """Return the number of key heads, from the shapes of the tensors.

        Raises:
            InputError: the shapes do not fit the number of heads.
        """
        prefix = "model.layers.0.self_attn"
        fused_name, query_name = f"{prefix}.qkv_proj.weight", f"{prefix}.q_proj.weight"
        rows = {name: shape[0] for name, shape in self._shapes.items() if len(shape) == 2}
        if fused_name in rows:
            keys = (rows[fused_name] // self.head - self.heads) // 2
            fits_heads = (self.heads + 2 * keys) * self.head == rows[fused_name]
        elif {query_name, f"{prefix}.k_proj.weight"} <= rows.keys():
            keys = rows[f"{prefix}.k_proj.weight"] // self.head
            fits_heads = rows[query_name] == self.heads * self.head
        else:
            raise self.unfit("model_type", f"a model with {query_name}", self._config["model_type"])
        if not fits_heads or keys < 1:
            raise self.unfit("num_attention_heads", "a number that fits the weights", self.heads)
        return keys

    def _whole(self, key: str) -> int:
        value = self._config.get(key)
        if type(value) is not int or not 0 < value < 1 << 32:
            raise self.unfit(key, _NO_DEFAULT if value is None else "a whole number", value)
        return value

    def _number(self, key: str) -> float:
        value: Any = self._config.get(key)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.unfit(key, _NO_DEFAULT if value is None else "a number above 0", value)
        return float(value)

    def _check(self) -> None:
        """Verify that llama.cpp supports the settings of config.json.

        Raises:
            InputError: a setting is not supported.
        """
        config, kind = self._config, self.family.model_type
        activation = config.get("hidden_activation", config.get("hidden_act"))
        supported_activations = _ACTIVATIONS.get(kind, ("silu", "swish", None))
        if activation not in supported_activations:
            raise self.unfit("hidden_act", str(supported_activations[0]), activation)
        for key, value in self.family.fixed.items():
            if config.get(key, value) != value:
                raise self.unfit(key, repr(value), config[key])
        if kind == "qwen2_moe" and config.get("norm_topk_prob"):
            raise self.unfit("norm_topk_prob", "false", True)
        if kind in ("gemma2", "gemma3_text"):
            self._check_gemma()

    def _check_gemma(self) -> None:
        config, kind = self._config, self.family.model_type
        layers = self._whole("num_hidden_layers")
        is_large = (kind, layers) in LARGE_GEMMAS
        scale = self._whole("hidden_size") // self.heads if is_large else self.head
        if config.get("query_pre_attn_scalar", scale) != scale:
            value = config["query_pre_attn_scalar"]
            raise self.unfit("query_pre_attn_scalar", f"{scale}, as llama.cpp has it", value)
        full_attention_period = _FULL_ATTENTION[kind]
        expected_types = [
            "sliding_attention" if (layer + 1) % full_attention_period else "full_attention"
            for layer in range(layers)
        ]
        if config.get("layer_types", expected_types) != expected_types:
            raise self.unfit(
                "layer_types",
                f"every {full_attention_period}. layer with full attention, as llama.cpp has it",
                "others",
            )
        if config.get("sliding_window_pattern", full_attention_period) != full_attention_period:
            value = config["sliding_window_pattern"]
            raise self.unfit(
                "sliding_window_pattern", f"{full_attention_period}, as llama.cpp has it", value
            )
        if kind == "gemma3_text" and config.get("attn_logit_softcapping") is not None:
            raise self.unfit("attn_logit_softcapping", "null", config["attn_logit_softcapping"])


def _section(found: Any, key: str) -> Mapping[str, Any]:
    """Return the object under a key of another object; empty if either is missing or no object."""
    inner = found.get(key) if isinstance(found, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}
