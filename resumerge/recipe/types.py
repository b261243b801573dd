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
"""The values of ``out_dtype`` that name a quantisation scheme for the weights of linear layers.

``same`` is the scheme of the reference model.
"""


@dataclass(frozen=True)
class Conditional:
    """One entry of a filtered value.

    Args:
        filter: text that the names of the value's tensors contain; None for all tensors.
        value: a scalar, or a gradient over layers.
    """

    filter: str | None
    value: Setting


Setting = Scalar | tuple[Scalar, ...] | tuple[Conditional, ...]
"""A parameter's value as written: a scalar, a gradient over layers, or filtered values."""


@dataclass(frozen=True)
class ModelRef:
    """A reference to a model, as the recipe names it.

    The forms are ``org/name``, ``org/name@revision``, a local folder, and ``s3://bucket/prefix``.

    Args:
        text: the text exactly as written.
        name: the repo id, path or address, without the revision and `file`.
        revision: the branch, tag or commit; None for the default branch, and for a model that is
            not on the Hub.
        lora: the LoRA adapter of ``model+adapter``, or None.
        file: the name of the weight file in ``org/name/FILE`` or ``s3://…/FILE``; else empty. For
            a local weight file, `name` is the whole path.
    """

    text: str
    name: str
    revision: str | None = None
    lora: ModelRef | None = None
    file: str = ""

    @property
    def parts(self) -> tuple[ModelRef, ...]:
        """The model without its adapter, followed by the adapter, if the reference has one."""
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
        model: the model that the row is taken from; None for a row of zeros.
        token: the token's text in that model; None for the same text, or if `token_id` is set.
        token_id: the token's id in that model; None to find the row by the token's text.
        force: whether the row also replaces the rows of models that have the token.
    """

    model: ModelRef | None = None
    token: str | None = None
    token_id: int | None = None
    force: bool = False


@dataclass(frozen=True)
class TokenizerSetting:
    """The choice of the output's vocabulary.

    Args:
        source: ``union`` for the union of all vocabularies, ``base`` for the vocabulary of the base
            model (without a base model, of the first model), or the model with the vocabulary.
        tokens: the rows that do not follow the general rules, by token. A token that the vocabulary
            lacks is added to it.
        pad_to_multiple_of: the number of rows is rounded up to a multiple of this. None keeps the
            number of rows of the model with the vocabulary, if these are enough.
        key: the key in the recipe: ``tokenizer`` or ``tokenizer_source``.
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
        """Return the YAML path of a key below ``tokenizer``, for problems."""
        return self.key if self.key == "tokenizer_source" else f"tokenizer.{key}"


@dataclass(frozen=True)
class Input:
    """A model of a slice (or of ``models``), with its own parameters.

    Args:
        model: the reference to the model, with its adapter if it has one.
        layer_range: (start, stop), stop exclusive; None for all layers.
        parameters: the settings below this entry's ``parameters``, by name.
        path: the YAML path of this entry, for problems; ``base_model`` for a base model that the
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
        inputs: the models of the slice, in the order of the recipe; an added base model comes last.
        base_model: the base model of this slice; None for the recipe's.
        parameters: the settings below this slice's ``parameters``, by name.
        path: the YAML path of this entry; for a ``models`` list, the path of its module.
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
        slices: the slices, in the order of their layers in the output.
        name: the module's name in the recipe; None for the whole model.
        stacked: True for ``slices``, False for ``models``.
        parameters: the settings below this module's ``parameters``, by name; empty for the whole
            model.
        path: the YAML path of this entry; empty for the whole model.
    """

    slices: tuple[Slice, ...]
    name: str | None = None
    stacked: bool = False
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


MIXTURE = "mixture"
"""The value of `Recipe.merge_method` for a recipe that makes a mixture of experts."""

OF_HIDDEN_STATES = ("hidden", "hidden_avg", "hidden_last", "hidden_norm")
"""The gate modes that compute gates from the base model's hidden states for prompts."""

OF_PROMPTS = (*OF_HIDDEN_STATES, "cheap_embed")
"""The gate modes that compute gates from prompts."""

GATE_MODES = (*OF_PROMPTS, "random", "uniform_random")
"""The gate modes of a mixture; the first is mergekit-moe's default."""

LAYOUTS = ("separate", "packed")
"""The forms in which a mixture's experts are stored.

With ``separate``, each matrix of an expert is a tensor. With ``packed``, a tensor contains matrices
of all experts of a layer.
"""


@dataclass(frozen=True)
class Expert:
    """An expert of a mixture: the MLPs of a dense model.

    Args:
        model: the reference to the dense model that the MLPs are taken from.
        positive_prompts: the prompts for which the gate favours this expert.
        negative_prompts: the prompts for which the gate disfavours this expert.
        noise_scale: the standard deviation of noise that is added to the matrices.
        residual_scale: the factor on the matrices that compute the expert's output.
        path: the YAML path of this entry, like ``experts[0]``, for problems.
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
        gate_mode: the way in which gates are made: one of `GATE_MODES`.
        experts_per_token: the number of experts that each token uses, not counting shared experts.
        architecture: the beginning of the output architecture's name; None for the first
            architecture that fits the models.
        expert_layout: the form of the experts in the output's files: one of `LAYOUTS`.
    """

    experts: tuple[Expert, ...]
    shared_experts: tuple[Expert, ...] = ()
    gate_mode: str = GATE_MODES[0]
    experts_per_token: int = 2
    architecture: str | None = None
    expert_layout: str = LAYOUTS[0]

    @property
    def every(self) -> tuple[Expert, ...]:
        """The experts, followed by the shared experts."""
        return (*self.experts, *self.shared_experts)


@dataclass(frozen=True)
class Extraction:
    """The part of a recipe that makes a LoRA adapter of a model's differences from its base.

    The options have the same meaning as in mergekit-extract-lora 0.1.5 (observed).

    Args:
        model: the reference to the model whose difference from the base is extracted.
        max_rank: the largest rank that any module of the adapter gets.
        sv_epsilon: the largest singular value of a direction that is left out.
        energy: the share of each change's energy that is kept, if the largest rank allows it; None
            to keep as much as the largest rank allows.
        distribute_scale: whether each of the two matrices is scaled by the roots of the singular
            values.
        embed_lora: whether embeddings and heads are decomposed; else they are saved whole.
        save_modules: the modules that are saved whole, by their names or the names' last words.
        include: regular expressions; a module takes part only if its name matches one of them. If
            empty, all modules take part.
        exclude: regular expressions; a module whose name matches one of them is left out.
        skip_undecomposable: whether modules that are not matrices are left out; else they are saved
            whole.
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
        """Whether ranks depend on the changes; else they depend only on the largest rank."""
        return self.energy is not None or self.sv_epsilon > 0.0


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. ``models`` or ``slices`` at the top level become one module.

    A base model that ``models`` does not name is the last input, without parameters (same as
    mergekit 0.1.5, observed). In ``slices`` the base model is never added.

    A file with several documents becomes the recipe of its result; the other documents become the
    stages of this recipe.

    Args:
        merge_method: the name of the merge method; for a recipe without a method, `MIXTURE` or
            `EXTRACTION`.
        modules: the modules to merge; empty for a recipe without a method.
        base_model: the base model; None if the recipe names none.
        parameters: the parameters of the whole merge, by name.
        dtype: the dtype that the models are rounded to before they are merged, and that the output
            has if `out_dtype` is None or a scheme; None for the dtype of the models.
        out_dtype: the dtype of the output, or one of `QUANTISED`, or a quantised type of GGUF.
        tokenizer: the choice of the output's vocabulary; None for the reference model's vocabulary.
        chat_template: ``auto``, a built-in name, or a Jinja template; None for the tokenizer's own
            template.
        experts_together: whether the experts of a layer are merged as one tensor for each
            projection.
        mixture: the mixture of experts that the recipe makes; None for any other recipe.
        extract_expert: the number of an expert. Every model is then a mixture, and this expert of
            it is used as a dense model. None for plain models.
        extraction: the adapter that the recipe extracts; None for any other recipe.
        rank: for combined adapters, the largest rank of the result; None for a rank that loses
            nothing.
        ignored: the unknown keys, by their YAML paths.
        notes: sentences on keys and values that have no effect, or a surprising effect.
        text: the YAML text, for the ledger and the model card.
        file: the name of the recipe file, for messages.
        lines: the line of each YAML path (``slices[0].sources[1]``), counted from 1.
        name: the name of the stage; empty if the document has no name.
        stages: the recipes whose results are models of this recipe or of its stages. Each comes
            after the stages that it names itself, and its own `stages` are empty.
        variants: the recipes of a sweep, by the names of their outputs; empty without a sweep. With
            a sweep, the other fields, except `text`, are those of the first variant.
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
        """The stages, followed by the recipes of `results`."""
        return (*self.stages, *self.results)

    @property
    def results(self) -> tuple[Recipe, ...]:
        """The recipe itself, or each variant of a sweep."""
        return tuple(self.variants.values()) or (self,)

    @property
    def quantised_as(self) -> str | None:
        """The quantisation scheme of the output's weights; None for plain weights."""
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
        """The names of the stages: a model with such a name is the result of a stage."""
        return frozenset(stage.name for stage in self.stages)

    @property
    def source_models(self) -> tuple[ModelRef, ...]:
        """Every model that is read, without duplicates; of a stage with an adapter, the adapter."""
        refs = (ref for document in self.documents for ref in document.models)
        return tuple(dict.fromkeys(read for ref in refs for read in self._read_of(ref)))

    def is_adapter(self, ref: ModelRef) -> bool:
        """Return whether one of `source_models` is an adapter of a stage; else it is a model."""
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
        """Every model of the recipe, without duplicates: merged models, then models of tokens."""
        tokens = self.tokenizer.models if self.tokenizer else ()
        return tuple(dict.fromkeys((*self.merged_models, *tokens)))

    @property
    def merged_models(self) -> tuple[ModelRef, ...]:
        """The models whose tensors are merged, without duplicates: inputs, base models, experts."""
        refs = [i.model for s in self.slices for i in s.inputs]
        refs += [ref for ref in (self.base_model, *(s.base_model for s in self.slices)) if ref]
        refs += [expert.model for expert in self.mixture.every] if self.mixture else []
        refs += [self.extraction.model] if self.extraction else []
        return tuple(dict.fromkeys(refs))

    def path_of(self, ref: ModelRef) -> str:
        """Return the first YAML path at which the recipe names one of its models."""
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
        """Return (YAML path, settings) of each ``parameters`` with settings, outermost first."""
        scopes: list[tuple[str, Mapping[str, Setting]]] = [("", self.parameters)]
        for module in self.modules:
            scopes.append((module.path, module.parameters))
            for slice_ in module.slices:
                scopes.append((slice_.path, slice_.parameters))
                scopes += [(i.path, i.parameters) for i in slice_.inputs]
        return [(descend(path, ("parameters",)), settings) for path, settings in scopes if settings]

    def problem(self, what: str, path: str, **facts: Any) -> Problem:
        """Return a `Problem` at a YAML path of this recipe, with its file and line."""
        return Problem(what, where=self.file, path=path, line=self.line(path), **facts)

    def line(self, path: str) -> int | None:
        """Return the line of a YAML path, or of its nearest parent that has a line."""
        return nearest_line(self.lines, path)
