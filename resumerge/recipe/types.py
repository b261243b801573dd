"""A valid recipe as frozen dataclasses: what to merge, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from resumerge.errors import Problem
from resumerge.output_path import EXTRACTION
from resumerge.recipe.yaml_lines import descend, nearest_line

Scalar = float | int | bool | str

QUANTISED = ("fp8_block", "fp8_channel", "int4", "mxfp4", "nvfp4", "same")
"""The values of ``out_dtype`` that say how the weights of linear layers are quantised.

``same`` is the scheme that the reference model has.
"""


@dataclass(frozen=True)
class Conditional:
    """One entry of a filtered value.

    Args:
        filter: a part of the names of the tensors that the value applies to; None for all tensors.
    """

    filter: str | None
    value: Setting


Setting = Scalar | tuple[Scalar, ...] | tuple[Conditional, ...]
"""A parameter's value as written: a scalar, a gradient over layers, or filtered values."""


@dataclass(frozen=True)
class ModelRef:
    """A model as the recipe names it.

    The forms are ``org/name``, ``org/name@revision``, a local folder, and ``s3://bucket/prefix``.

    Args:
        text: the text exactly as written.
        name: the repo id, path or address, without the revision and `file`.
        revision: the branch, tag or commit; None for the default branch and for models elsewhere.
        lora: the LoRA adapter of ``model+adapter``, or None.
        file: the one weight file that ``org/name/FILE`` or ``s3://…/FILE`` means; else empty. A
            local file is named by `name` alone.
    """

    text: str
    name: str
    revision: str | None = None
    lora: ModelRef | None = None
    file: str = ""

    @property
    def parts(self) -> tuple[ModelRef, ...]:
        """The model without its adapter, then the adapter if there is one."""
        if self.lora is None:
            return (self,)
        name = f"{self.name}/{self.file}" if self.file else self.name
        name += f"@{self.revision}" if self.revision else ""
        return ModelRef(name, self.name, self.revision, file=self.file), self.lora

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TokenRow:
    """The origin of the embedding row of one token of the output.

    Args:
        model: the model whose row it is; None for a row of zeros.
        token: the token's text in that model; None for the same text, or if `token_id` is given.
        token_id: the token's number in that model.
        force: also replaces the row of models that have the token.
    """

    model: ModelRef | None = None
    token: str | None = None
    token_id: int | None = None
    force: bool = False


@dataclass(frozen=True)
class TokenizerSetting:
    """The choice of the output's vocabulary.

    Args:
        source: the union of all vocabularies, that of the base model (or else of the first model),
            or that of one model.
        tokens: the rows that do not follow the general rules, by token; tokens that the vocabulary
            lacks are added to it.
        pad_to_multiple_of: the number of rows is rounded up to a multiple of this; None keeps the
            number of rows of the model that has the vocabulary, if they are enough.
        key: the recipe's key: ``tokenizer`` or ``tokenizer_source``.
    """

    source: Literal["union", "base"] | ModelRef = "union"
    tokens: Mapping[str, TokenRow] = field(default_factory=dict)
    pad_to_multiple_of: int | None = None
    key: str = "tokenizer"

    @property
    def models(self) -> Iterator[ModelRef]:
        """Every model that the setting names."""
        if isinstance(self.source, ModelRef):
            yield self.source
        yield from (row.model for row in self.tokens.values() if row.model is not None)

    def path(self, key: str) -> str:
        """Return the YAML path of one of the keys of ``tokenizer``, for problems."""
        return self.key if self.key == "tokenizer_source" else f"tokenizer.{key}"


@dataclass(frozen=True)
class Input:
    """One model of a slice (or of ``models``) with its own parameters.

    Args:
        layer_range: (start, stop), stop exclusive; None for all layers.
        path: YAML path of this entry, for problems; ``base_model`` for a base model that the
            ``models`` list does not name.
    """

    model: ModelRef
    layer_range: tuple[int, int] | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Slice:
    """Consecutive layers of the output, each computed from one layer of every input.

    Args:
        base_model: overrides the recipe's base model for this slice.
        path: YAML path of this entry; empty for the one slice of a ``models`` list.
    """

    inputs: tuple[Input, ...]
    base_model: ModelRef | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Module:
    """The slices of one module of a model (an entry of ``modules``), or of the whole model.

    A ``models`` list becomes one slice without layer ranges.

    Args:
        name: the module's name, as the recipe writes it; None for the whole model.
        stacked: True for ``slices``, False for ``models``.
        path: the YAML path of this entry; empty for the whole model.
    """

    slices: tuple[Slice, ...]
    name: str | None = None
    stacked: bool = False
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


MIXTURE = "mixture"
"""The name that stands for the method of a recipe that makes a mixture of experts."""

OF_HIDDEN_STATES = ("hidden", "hidden_avg", "hidden_last", "hidden_norm")
"""The gate modes that make gates of the base's hidden states for prompts."""

OF_PROMPTS = (*OF_HIDDEN_STATES, "cheap_embed")
"""The gate modes that make gates of prompts."""

GATE_MODES = (*OF_PROMPTS, "random", "uniform_random")
"""The gate modes of a mixture; the first is mergekit-moe's default."""

LAYOUTS = ("separate", "packed")
"""The forms in which a mixture's experts are stored: each matrix by itself, or a layer's as one."""


@dataclass(frozen=True)
class Expert:
    """An expert of a mixture: the MLPs of a model.

    Args:
        model: the model.
        positive_prompts: the prompts for which the gate favours this expert.
        negative_prompts: the prompts for which the gate disfavours this expert.
        noise_scale: the standard deviation of noise that is added to the matrices.
        residual_scale: the factor on the matrices that make the expert's output.
        path: the YAML path of this entry.
    """

    model: ModelRef
    positive_prompts: tuple[str, ...] = ()
    negative_prompts: tuple[str, ...] = ()
    noise_scale: float = 0.0
    residual_scale: float = 1.0
    path: str = ""


@dataclass(frozen=True)
class Mixture:
    """The part of a recipe that makes a mixture of experts.

    Args:
        experts: the experts that a router chooses from.
        shared_experts: the experts whose output is always added.
        gate_mode: one of `GATE_MODES`.
        experts_per_token: the number of experts that each token uses, without the shared ones.
        architecture: the beginning of a name; None for the first that fits.
        expert_layout: one of `LAYOUTS`.
    """

    experts: tuple[Expert, ...]
    shared_experts: tuple[Expert, ...] = ()
    gate_mode: str = GATE_MODES[0]
    experts_per_token: int = 2
    architecture: str | None = None
    expert_layout: str = LAYOUTS[0]

    @property
    def every(self) -> tuple[Expert, ...]:
        """The experts, then the shared ones."""
        return (*self.experts, *self.shared_experts)


@dataclass(frozen=True)
class Extraction:
    """The part of a recipe that makes a LoRA adapter of a model's differences from its base.

    The options and their meaning are those of mergekit-extract-lora 0.1.5 (observed).

    Args:
        model: the model.
        max_rank: the largest rank of a module.
        sv_epsilon: directions whose singular value is not larger are left out.
        energy: the share of the energy of each change that is kept, if the largest rank allows it;
            None to keep as much as the largest rank allows.
        distribute_scale: whether both matrices have the roots of the singular values.
        embed_lora: whether embeddings and heads are decomposed, rather than saved whole.
        save_modules: the modules that are saved whole: names, or their last words.
        include: regular expressions, one of which the name of a module must match; none for all.
        exclude: regular expressions that it must not match.
        skip_undecomposable: whether modules that are no matrices are left out, rather than saved.
    """

    model: ModelRef
    max_rank: int = 128
    sv_epsilon: float = 0.0
    energy: float | None = None
    distribute_scale: bool = True
    embed_lora: bool = False
    save_modules: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skip_undecomposable: bool = False

    @property
    def chooses_ranks(self) -> bool:
        """Whether ranks depend on the changes, and not on the largest rank alone."""
        return self.energy is not None or self.sv_epsilon > 0.0


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. ``models`` or ``slices`` at the top level become one module.

    A base model that ``models`` does not name is the last input, without parameters (same as
    mergekit 0.1.5, observed). In ``slices`` the base model is never added.

    A recipe of several documents is the one of its result, with the others as its stages.

    Args:
        tokenizer: the choice of the output's vocabulary; None for that of the reference model.
        chat_template: ``auto``, a built-in name, or a Jinja template; None for the tokenizer's own.
        experts_together: the experts of a layer are merged as one tensor for each projection.
        mixture: the mixture of experts that the recipe makes, instead of merging; else None.
        extract_expert: the number of an expert: every model is a mixture, of which this expert is
            taken as a dense model; None for plain models.
        extraction: the adapter that the recipe extracts, instead of merging; else None.
        rank: for combined adapters, the highest rank of the result; None for a rank that loses
            nothing.
        ignored: the unknown keys, by their YAML paths.
        notes: sentences on keys and values that have no effect, or a surprising one.
        text: the YAML text, for the ledger and the model card.
        file: the name of the file, for messages.
        lines: the line of each YAML path (``slices[0].sources[1]``), counted from 1.
        name: the stage's name; empty if the document has none.
        stages: the merges whose results are models of this recipe or of its stages, each after the
            stages that it names itself. Their own `stages` are empty.
        variants: the recipes of a sweep, by the names of their outputs; empty without a sweep. The
            other fields, except `text`, are then those of the first variant.
    """

    merge_method: str
    modules: tuple[Module, ...] = ()
    base_model: ModelRef | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    dtype: str | None = None
    out_dtype: str | None = None
    tokenizer: TokenizerSetting | None = None
    chat_template: str | None = None
    experts_together: bool = False
    mixture: Mixture | None = None
    extract_expert: int | None = None
    extraction: Extraction | None = None
    rank: int | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    text: str = ""
    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    stages: tuple[Recipe, ...] = ()
    variants: Mapping[str, Recipe] = field(default_factory=dict)

    @property
    def documents(self) -> tuple[Recipe, ...]:
        """The stages, then the recipes of `results`."""
        return (*self.stages, *self.results)

    @property
    def results(self) -> tuple[Recipe, ...]:
        """The recipe itself, or each variant of a sweep."""
        return tuple(self.variants.values()) or (self,)

    @property
    def quantised_as(self) -> str | None:
        """The scheme that the output's weights are quantised in; None for plain ones."""
        return self.out_dtype if self.out_dtype in QUANTISED else None

    @property
    def plain_dtype(self) -> str | None:
        """The dtype of the output's plain floats; None for the dtype of the models."""
        return self.dtype if self.quantised_as else self.out_dtype or self.dtype

    @property
    def has_method(self) -> bool:
        """Whether a merge method makes the result."""
        return self.mixture is None and self.extraction is None

    @property
    def stage_names(self) -> frozenset[str]:
        """The names by which models of the recipe are results of stages."""
        return frozenset(stage.name for stage in self.stages)

    @property
    def source_models(self) -> tuple[ModelRef, ...]:
        """Every model that is read, once; for a stage with an adapter, the adapter."""
        named = (ref for document in self.documents for ref in document.models)
        return tuple(dict.fromkeys(read for ref in named for read in self._read_of(ref)))

    def is_adapter(self, ref: ModelRef) -> bool:
        """Return whether one of `source_models` is an adapter of a stage, rather than a model."""
        return not any(ref in document.models for document in self.documents)

    def _read_of(self, ref: ModelRef) -> tuple[ModelRef, ...]:
        base, *adapters = ref.parts
        return tuple(adapters) if base.text in self.stage_names else (ref,)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The slices of all modules."""
        return tuple(slice_ for module in self.modules for slice_ in module.slices)

    @property
    def models(self) -> tuple[ModelRef, ...]:
        """Every model of the recipe, once: merged models first, then those of tokens only."""
        tokens = self.tokenizer.models if self.tokenizer else ()
        return tuple(dict.fromkeys((*self.merged_models, *tokens)))

    @property
    def merged_models(self) -> tuple[ModelRef, ...]:
        """The models whose tensors are merged, in order of appearance."""
        named = [i.model for s in self.slices for i in s.inputs]
        named += [ref for ref in (self.base_model, *(s.base_model for s in self.slices)) if ref]
        named += [expert.model for expert in self.mixture.every] if self.mixture else []
        named += [self.extraction.model] if self.extraction else []
        return tuple(dict.fromkeys(named))

    def path_of(self, ref: ModelRef) -> str:
        """Return the YAML path at which the recipe names one of its models first."""
        paths = [i.path for s in self.slices for i in s.inputs if i.model == ref]
        paths = [path if path.endswith("base_model") else f"{path}.model" for path in paths]
        paths += ["base_model"] if self.base_model == ref else []
        experts = self.mixture.every if self.mixture else ()
        paths += [f"{expert.path}.source_model" for expert in experts if expert.model == ref]
        if self.extraction and self.extraction.model == ref:
            paths.append(f"{EXTRACTION}.model")
        paths += [self.tokenizer.key] if self.tokenizer else []
        return next(iter(paths), "base_model")

    def parameter_scopes(self) -> list[tuple[str, Mapping[str, Setting]]]:
        """Return (YAML path, settings) of every ``parameters`` in the recipe, outermost first."""
        scopes: list[tuple[str, Mapping[str, Setting]]] = [("", self.parameters)]
        for module in self.modules:
            scopes.append((module.path, module.parameters))
            for slice_ in module.slices:
                scopes.append((slice_.path, slice_.parameters))
                scopes += [(i.path, i.parameters) for i in slice_.inputs]
        return [(descend(path, ("parameters",)), found) for path, found in scopes if found]

    def problem(self, what: str, path: str, **facts: Any) -> Problem:
        """Return a `Problem` at a YAML path of this recipe, with its file and line."""
        return Problem(what, where=self.file, path=path, line=self.line(path), **facts)

    def line(self, path: str) -> int | None:
        """Return the line of a YAML path, or of its nearest parent that has a line."""
        return nearest_line(self.lines, path)
