"""The tensors of the output, each with its name in every input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from resumerge.layout import (
    ModulePart,
    before_layers,
    find_tensor,
    is_computed,
    is_tied_copy,
    split,
    step_position,
    untied_head,
)
from resumerge.layout.model_views import ModelViews
from resumerge.layout.sentence_modules import lacks_sentence_module
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.module_matches import ModuleMatch
from resumerge.planning.plan import LayerMap, LayerOrigin
from resumerge.recipe import Input, ModelRef, Module, Recipe, Slice
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import is_embedding, tied_groups, tied_names
from resumerge.sources.tied_weights import is_head
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors.target import Target


class OutputSpecs(NamedTuple):
    """The tensors of the output, before their expressions are made.

    Args:
        specs: every tensor of the output.
        unused: the names of each model's tensors that the output does not use.
    """

    specs: list[TensorSpec]
    unused: Mapping[ModelRef, list[str]]


@dataclass(frozen=True)
class TensorSpec:
    """One output tensor before its operands are looked up.

    Args:
        names: the tensor's name in each input, in the order of the inputs.
        t: position of the tensor for gradients, from 0 to 1.
        module: the module of its slice; None if no module names the tensor's part, which is then
            copied from the reference.
        like: the name of the reference's tensor with the same shape; None in a stacked layer,
            because layers may be of several kinds.
    """

    name: str
    slice_: Slice
    names: tuple[str, ...]
    t: float
    module: Module | None
    like: str | None


def guide_of(recipe: Recipe, slice_: Slice) -> Input:
    """Return the input that decides which tensors a slice has: its base, or else the first."""
    base = slice_.base_model or recipe.base_model
    return next((i for i in slice_.inputs if i.model == base), slice_.inputs[0])


def aligned(models: ModelViews, module: Module, part: ModulePart) -> Iterator[TensorSpec]:
    """Yield every tensor of the part, which is computed from the same tensor of every input."""
    [slice_] = module.slices
    layers = models.layers[models.reference]
    for name in part.tensors:
        yield _spec(models, module, slice_, name, layers.position(name))
    yield from _untied(models, module, slice_, slice_, part)


def stacked(
    recipe: Recipe, models: ModelViews, module: Module, part: ModulePart
) -> Iterator[TensorSpec]:
    """Yield the tensors before the layers, the layers of every slice, and the tensors after."""
    first_slice, last_slice = module.slices[0], module.slices[-1]
    assert part.stack is not None
    yield from _outside(models, module, first_slice, part, before=True)
    output_layer = 0
    for slice_ in module.slices:
        guide = guide_of(recipe, slice_)
        names_in_layers = models.layer_tensors(guide.model, part.stack)
        start, stop = guide.layer_range or (0, 0)
        for step_in_slice in range(stop - start):
            for inner_name in names_in_layers.get(start + step_in_slice, []):
                yield TensorSpec(
                    f"{part.stack}.{output_layer}.{inner_name}",
                    slice_,
                    tuple(
                        f"{models.stack_in(input_.model, part.stack)}."
                        f"{input_.layer_range[0] + step_in_slice}.{inner_name}"
                        for input_ in slice_.inputs
                        if input_.layer_range
                    ),
                    step_position(step_in_slice, stop - start),
                    module,
                    None,
                )
            output_layer += 1
    yield from _outside(models, module, last_slice, part, before=False)
    yield from _untied(models, module, first_slice, last_slice, part)


def copied(models: ModelViews, part: ModulePart) -> Iterator[TensorSpec]:
    """Yield the tensors of a part that no module of the recipe names, from the reference."""
    slice_ = Slice((Input(models.reference),))
    for name in part.tensors:
        yield TensorSpec(name, slice_, (name,), 0.0, None, name)


def layer_map(models: ModelViews, module: Module, stack: str) -> LayerMap:
    """Return the origin of each layer of a stacked module."""
    origins = [
        LayerOrigin(
            tuple(
                (models.sources[input_.model].number, input_.layer_range[0] + step_in_slice)
                for input_ in slice_.inputs
                if input_.layer_range
            )
        )
        for slice_ in module.slices
        for step_in_slice in range(_length(slice_))
    ]
    return LayerMap(
        stack, tuple(models.layers[models.reference].keys.get(stack, ())), tuple(origins)
    )


def _outside(
    models: ModelViews, module: Module, slice_: Slice, part: ModulePart, *, before: bool
) -> Iterator[TensorSpec]:
    layers = models.layers[models.reference]
    for name in part.tensors:
        layer = layers.locate(name)
        numbered_name = split(name)
        if numbered_name is not None and numbered_name.stack == part.stack:
            # A layer that predicts further tokens remains the last layer.
            if layer is None and not before:
                output_index = (
                    numbered_name.index
                    - layers.counts[numbered_name.stack]
                    + sum(_length(s) for s in module.slices)
                )
                spec = _spec(models, module, slice_, name, 0.0)
                yield replace(spec, name=numbered_name.at(output_index))
        elif (layer is not None or before_layers(name)) == before:
            yield _spec(models, module, slice_, name, 0.0)


def _untied(
    models: ModelViews, module: Module, first: Slice, last: Slice, part: ModulePart
) -> Iterator[TensorSpec]:
    """Yield the tensors that the reference ties to its embedding, if the output cannot tie them.

    The output cannot tie them if an input has its own head (as in mergekit 0.1.5, observed), or if
    the head and the embedding come from different slices. The operand of a tied model is its
    embedding. All tied tensors of the reference are yielded, because config.json ties either all of
    them or none.
    """
    reference = models.sources[models.reference]
    stored_by_tied = tied_names(reference.config, reference.tensors)
    stored_by_tied = {
        name: stored_name
        for name, stored_name in stored_by_tied.items()
        if stored_name in part.tensors
    }
    heads = {i.model: untied_head(models.sources[i.model]) for i in last.inputs}
    own_head_spec = None
    for ref, head in heads.items():
        name = models.name_like_ours(ref, head) if head else ""
        embedding = find_tensor(reference, name)
        if name in reference.tensors or embedding is None or embedding.name not in part.tensors:
            continue
        names = tuple(heads[i.model] or name for i in last.inputs)
        own_head_spec = TensorSpec(name, last, names, 0.0, module, embedding.name)
        break
    if own_head_spec is None and _same_inputs(first, last):
        return
    for name, stored_name in stored_by_tied.items():
        if own_head_spec is None or not is_head(name):
            slice_ = first if is_embedding(name) else last
            names = tuple(heads.get(i.model) or name for i in slice_.inputs)
            names = names if is_head(name) else (name,) * len(slice_.inputs)
            yield TensorSpec(name, slice_, names, 0.0, module, stored_name)
    if own_head_spec is not None:
        yield own_head_spec


def _same_inputs(first: Slice, last: Slice) -> bool:
    """Return whether two slices compute a tensor outside the layers from the same inputs."""
    first_key, last_key = (
        (
            slice_.base_model,
            slice_.parameters,
            [(input_.model, input_.parameters) for input_ in slice_.inputs],
        )
        for slice_ in (first, last)
    )
    return first_key == last_key


def tied_like_reference(models: ModelViews, targets: list[Target]) -> list[Target]:
    """Return the targets without tensors that the output can tie as the reference does.

    Args:
        models: the models, of which the reference decides what is tied.
        targets: the tensors of the output, including a separate tensor for each tied name.
    """
    reference = models.sources[models.reference]
    stored_by_tied = tied_names(reference.config, reference.tensors)
    target_by_name = {target.name: target for target in targets}
    pairs = [
        (target_by_name[tied_name], target_by_name[stored_name])
        for tied_name, stored_name in stored_by_tied.items()
        if tied_name in target_by_name and stored_name in target_by_name
    ]
    if any(
        tied_target.expression.as_json() != stored_target.expression.as_json()
        for tied_target, stored_target in pairs
    ):
        return targets
    return [target for target in targets if target.name not in stored_by_tied]


def _spec(models: ModelViews, module: Module, slice_: Slice, name: str, t: float) -> TensorSpec:
    if any(lacks_sentence_module(models, i.model, name) for i in slice_.inputs):
        return TensorSpec(name, Slice((Input(models.reference),)), (name,), 0.0, None, name)
    names = tuple(models.name_in(i.model, name) for i in slice_.inputs)
    return TensorSpec(name, slice_, names, t, module, name)


def _length(slice_: Slice) -> int:
    start, stop = slice_.inputs[0].layer_range or (0, 0)
    return stop - start


def unused_tensors(
    models: ModelViews,
    modules: Sequence[ModuleMatch],
    specs: Iterable[TensorSpec],
    mismatches: Mismatches,
) -> dict[ModelRef, list[str]]:
    """Return the tensors of each model that the output lacks; empty if every module is stacked.

    A tensor that is left out of merged layers is recorded as a mismatch, because the reference's
    architecture has no place for it. Tensors that transformers computes are not recorded.
    """
    whole_modules = [(module, part) for module, part in modules if not module.stacked]
    if not whole_modules:
        return {}
    used_names: dict[ModelRef, set[str]] = {ref: set() for ref in models.sources}
    for spec in specs:
        for input_, name in zip(spec.slice_.inputs, spec.names):
            used_names[input_.model].add(name)
    reference_tensors = models.sources[models.reference].tensors
    unused_names: dict[ModelRef, list[str]] = {}
    for ref, source in models.sources.items():
        used_or_like_reference = used_names[ref] | {
            models.name_in(ref, name) for name in reference_tensors
        }
        unused_names[ref] = [
            name
            for name in source.tensors
            if name not in used_or_like_reference and not is_tied_copy(source, name)
        ]
    for module, part in whole_modules:
        stacks = {s for s in models.layers[models.reference].counts if _holds(part, s)}
        for input_ in module.slices[0].inputs:
            merged_stacks = {models.stack_in(input_.model, stack) for stack in stacks}
            for name in unused_names[input_.model]:
                layer = models.layers[input_.model].locate(name)
                tensor = models.sources[input_.model].tensors[name]
                if layer and layer.stack in merged_stacks and not is_computed(tensor):
                    mismatches.surplus(input_, name, models.reference)
    return unused_names


def unnamed_tensors(
    recipe: Recipe, models: ModelViews, specs: Iterable[TensorSpec]
) -> Iterator[LeftOut]:
    """Yield every tensor that is not an input of any output tensor, with the reason.

    Some tensors are matched with an output tensor but not used (whole numbers, tied heads):
    `expressions` and `flat/matching` record them. A tensor without a reason is not yielded; the
    accounts report it.

    Args:
        recipe: the recipe, which tells merged models from models that only its ``tokenizer`` names.
        models: the models, whose tensors are all compared with the inputs of `specs`.
        specs: every tensor of the output.
    """
    merged_refs = {input_.model for slice_ in recipe.slices for input_ in slice_.inputs}
    input_names: dict[ModelRef, set[str]] = {ref: set() for ref in models.sources}
    givers: dict[str, list[set[ModelRef]]] = defaultdict(list)
    for spec in specs:
        for input_, name in zip(spec.slice_.inputs, spec.names):
            input_names[input_.model].add(name)
        if spec.like is not None:
            givers[spec.like].append({input_.model for input_ in spec.slice_.inputs})
    for ref, source in models.sources.items():
        unused_names = [name for name in source.tensors if name not in input_names[ref]]
        if ref not in merged_refs:
            reason = (
                UnusedReason.NOT_MERGED if ref in recipe.merged_models else UnusedReason.TOKENIZER
            )
            yield from (LeftOut(source.tensors[name], reason) for name in unused_names)
        elif unused_names:
            model = _MergedModel(models, ref, input_names[ref], givers)
            for name in unused_names:
                if why_unused := model.reason(name):
                    yield LeftOut(source.tensors[name], why_unused)


class _MergedModel:
    """A merged model, and the reasons why some of its tensors are not used.

    Args:
        models: all models of the recipe, with the reference among them.
        ref: the merged model that the reasons are about.
        named: the names of its tensors that are inputs of output tensors.
        givers: the set of input models of each output tensor, by the name of the reference's
            tensor of the same shape. A tied embedding has two sets: one for the output's
            embedding, one for its head.
    """

    def __init__(
        self,
        models: ModelViews,
        ref: ModelRef,
        named: Iterable[str],
        givers: Mapping[str, Sequence[Collection[ModelRef]]],
    ) -> None:
        self._source = models.sources[ref]
        self._layers = models.layers[ref]
        self._chosen: dict[str, set[int]] = defaultdict(set)
        for layer in filter(None, map(self._layers.locate, named)):
            self._chosen[layer.stack].add(layer.index)
        reference_tensors = models.sources[models.reference].tensors
        reference_names = {models.name_in(ref, name): name for name in reference_tensors}
        self._from_others = {
            own_name
            for own_name, name in reference_names.items()
            if any(ref not in giver_refs for giver_refs in givers.get(name, ()))
        }
        self._unplaced = self._source.tensors.keys() - reference_names.keys()
        groups = tied_groups(self._source.config, self._source.tensors)
        stored_groups = (
            [name for name in group if name in self._source.tensors] for group in groups
        )
        self._tied = {name for group in stored_groups for name in group[1:]}

    def reason(self, name: str) -> UnusedReason | None:
        """Return the reason why a tensor is not used; None if no rule leaves it out."""
        if is_computed(self._source.tensors[name]):
            return UnusedReason.COMPUTED
        if name in self._tied or is_tied_copy(self._source, name):
            return UnusedReason.TIED
        if name in self._from_others:
            return UnusedReason.FROM_ANOTHER
        layer = self._layers.locate(name)
        if layer is not None and layer.stack in self._chosen:
            is_chosen = layer.index in self._chosen[layer.stack]
            return UnusedReason.NO_PLACE if is_chosen else UnusedReason.NOT_CHOSEN
        if name in self._unplaced:
            return UnusedReason.NO_PLACE
        return None if layer is None else UnusedReason.NOT_CHOSEN


def _holds(part: ModulePart, stack: str) -> bool:
    return any(name.startswith(f"{stack}.") for name in part.tensors)
