"""From a recipe and the headers of its sources to the plan. Every problem is found here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.layout import Layers, find_tensor, infer_layers, is_tied_copy
from resumerge.layout.layers import before_layers, step_position
from resumerge.methods import METHODS, Method, Work
from resumerge.plan import model
from resumerge.plan.model import Expression, LayerOrigin, Operand, Plan
from resumerge.plan.nearest import nearest
from resumerge.plan.parameters import Parameters, unknown_parameters
from resumerge.plan.shards import Target, pack
from resumerge.recipe import Input, ModelRef, Recipe, Slice
from resumerge.sources.dtypes import BY_TORCH_NAME, FLOATS
from resumerge.sources.model import Source, TensorInfo

SHOWN = 10
"""Problems of one kind (missing tensors, shapes) that are listed before the rest is counted."""


def make_plan(
    recipe: Recipe, sources: Mapping[ModelRef, Source], *, seed: int, shard_size: int
) -> Plan:
    """Plan a merge.

    Args:
        sources: every model that the recipe names, opened.
        seed: of random masks.
        shard_size: largest shard in bytes.

    Raises:
        InputError: with every problem that was found.
    """
    return _Planner(recipe, sources).plan(seed, shard_size)


@dataclass(frozen=True)
class _Cell:
    """One output tensor before its operands are looked up.

    Args:
        names: the tensor's name in each input, by the input's position.
        t: where gradients stand at it.
    """

    name: str
    slice_: Slice
    names: tuple[str, ...]
    t: float


@dataclass
class _Planner:
    recipe: Recipe
    sources: Mapping[ModelRef, Source]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plan(self, seed: int, shard_size: int) -> Plan:
        self.notes += self.recipe.notes
        self.method = self._method()
        self.numbers = {ref: number for number, ref in enumerate(self.sources)}
        self.layers = {
            ref: infer_layers(source.tensors, source.config) for ref, source in self.sources.items()
        }
        self.reference = self.recipe.base_model or self.recipe.slices[0].inputs[0].model
        self.parameters = Parameters(self.recipe, self.method)
        problems, notes = unknown_parameters(self.recipe, self.method)
        self.problems += problems
        self.notes += notes
        slices = [self._with_base(slice_) for slice_ in self.recipe.slices]
        self._check_inputs(slices)
        if self.recipe.stacked:
            self._check_ranges(slices)
        self._stop_on_problems()
        cells = self._stacked(slices) if self.recipe.stacked else self._aligned(slices[0])
        targets = [target for cell in cells if (target := self._target(cell, seed))]
        self.problems += self.parameters.problems
        if not targets and not self.problems:
            self.problems.append(
                self.recipe.problem(
                    "There are no tensors to merge",
                    "",
                    expected="a model that has some",
                    found=f"none in {self.reference}",
                    fix="check that the model was saved whole",
                )
            )
        self._stop_on_problems()
        self._note_dropped(slices)
        units, shards = pack(targets, shard_size)
        return Plan(
            recipe=self.recipe,
            sources=tuple(self.sources.values()),
            reference=self.numbers[self.reference],
            layers=self.layers[self.reference],
            origins=tuple(self._origins(slices)) if self.recipe.stacked else (),
            units=units,
            shards=shards,
            seed=seed,
            shard_size=shard_size,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _method(self) -> Method:
        name = self.recipe.merge_method
        if name in METHODS:
            return METHODS[name]
        raise InputError(
            [
                self.recipe.problem(
                    f"Unknown merge method {name!r}",
                    "merge_method",
                    expected=", ".join(METHODS),
                    found=name,
                    fix=nearest(name, METHODS),
                )
            ]
        )

    def _with_base(self, slice_: Slice) -> Slice:
        """The slice with the base model among its inputs.

        mergekit 0.1.5, observed: a base that ``models`` does not list is added as the last input,
        for every method; to a slice it is never added. Here it is added to a slice too where the
        method reads a base and all the sources have one layer range.
        """
        base = self._base(slice_)
        if base is None or (self.recipe.stacked and self.method.base == "none"):
            return slice_
        if any(i.model == base for i in slice_.inputs):
            return slice_
        ranges = {i.layer_range for i in slice_.inputs}
        if len(ranges) > 1:
            self.problems.append(
                self.recipe.problem(
                    "The base model's layers for this slice are not known",
                    slice_.path,
                    expected=f"{base} among the sources, with its layer_range",
                    found="sources with different layer ranges, and no base model",
                    fix=f"add `- model: {base}` with its layer_range to the sources",
                )
            )
            return slice_
        added = Input(base, layer_range=ranges.pop(), path=slice_.path)
        return Slice((*slice_.inputs, added), slice_.base_model, slice_.parameters, slice_.path)

    def _base(self, slice_: Slice) -> ModelRef | None:
        return slice_.base_model or self.recipe.base_model

    def _check_inputs(self, slices: list[Slice]) -> None:
        method = self.method
        for slice_ in slices:
            if method.base == "required" and self._base(slice_) is None:
                self.problems.append(
                    self.recipe.problem(
                        f"{method.name} needs a base model",
                        "merge_method",
                        expected="base_model: org/name",
                        found="no base_model",
                        fix="add `base_model:` at the top level of the recipe",
                    )
                )
                return
            count = len(slice_.inputs)
            if method.base == "optional":
                count -= any(i.model == self._base(slice_) for i in slice_.inputs)
            if count < method.fewest or (method.most is not None and count > method.most):
                counted = "not counted" if method.base == "optional" else "counted"
                wanted = (
                    f"exactly {method.most}"
                    if method.most == method.fewest
                    else f"at least {method.fewest}"
                )
                self.problems.append(
                    self.recipe.problem(
                        f"{method.name} takes {wanted} model{'s' * (method.fewest != 1)}",
                        slice_.path,
                        expected=f"{wanted} (the base model {counted})",
                        found=str(count),
                        fix="add or remove models, or choose another merge_method",
                    )
                )

    def _check_ranges(self, slices: list[Slice]) -> None:
        for slice_ in slices:
            for input_ in slice_.inputs:
                layers = self.layers[input_.model]
                assert input_.layer_range is not None
                start, stop = input_.layer_range
                if layers.count is None:
                    self.problems.append(self._no_stack(input_, layers))
                elif stop > layers.count:
                    self.problems.append(
                        self.recipe.problem(
                            f"The layer range goes past the end of {input_.model}",
                            f"{input_.path}.layer_range",
                            expected=f"at most [0, {layers.count}]: it has {layers.count} layers",
                            found=f"[{start}, {stop}]",
                            fix=f"write a range that ends at {layers.count} or before",
                        )
                    )

    def _no_stack(self, input_: Input, layers: Layers) -> Problem:
        several = ", ".join(f"{stack} ({n})" for stack, n in layers.counts.items())
        return self.recipe.problem(
            f"The layers of {input_.model} cannot be sliced",
            f"{input_.path}.layer_range",
            expected="one numbered list of tensors, as long as config.json's layer count",
            found=f"several: {several}" if several else "none",
            fix="merge whole models with `models:` instead of `slices:`",
        )

    def _stop_on_problems(self) -> None:
        if self.problems:
            raise InputError(self.problems)

    def _slice_reference(self, slice_: Slice) -> Input:
        """The input that says which tensors a slice has: the base where listed, else the first."""
        base = self._base(slice_)
        return next((i for i in slice_.inputs if i.model == base), slice_.inputs[0])

    def _aligned(self, slice_: Slice) -> Iterator[_Cell]:
        """Every tensor of the reference, computed from the same tensor of every input."""
        for name in self._ordered(self.reference):
            yield _Cell(
                name,
                slice_,
                (name,) * len(slice_.inputs),
                self.layers[self.reference].position(name),
            )

    def _stacked(self, slices: list[Slice]) -> Iterator[_Cell]:
        """What comes before the layers, the layers of every slice, what comes after them."""
        first, last = slices[0], slices[-1]
        yield from self._outside(first, before=True)
        stack = self.layers[self.reference].main
        output_layer = 0
        for slice_ in slices:
            guide = self._slice_reference(slice_)
            rests = self._layer_tensors(guide.model)
            start, stop = guide.layer_range or (0, 0)
            for step in range(stop - start):
                for rest in rests.get(start + step, []):
                    yield _Cell(
                        f"{stack}.{output_layer}.{rest}",
                        slice_,
                        tuple(
                            f"{self.layers[i.model].main}.{i.layer_range[0] + step}.{rest}"
                            for i in slice_.inputs
                            if i.layer_range
                        ),
                        step_position(step, stop - start),
                    )
                output_layer += 1
        yield from self._outside(last, before=False)

    def _outside(self, slice_: Slice, *, before: bool) -> Iterator[_Cell]:
        guide = self._slice_reference(slice_).model
        stack = self.layers[guide].main
        for name in self._ordered(guide):
            located = self.layers[guide].locate(name)
            if located is not None and located.stack == stack:
                continue
            if (located is not None or before_layers(name)) == before:
                yield _Cell(name, slice_, (name,) * len(slice_.inputs), 0.0)

    def _layer_tensors(self, ref: ModelRef) -> dict[int, list[str]]:
        """The names inside each layer of a model's main stack, in file order."""
        layers = self.layers[ref]
        found: dict[int, list[str]] = {}
        for name in self._ordered(ref):
            located = layers.locate(name)
            if located is not None and located.stack == layers.main:
                found.setdefault(located.index, []).append(located.rest)
        return found

    def _ordered(self, ref: ModelRef) -> list[str]:
        """Tensor names in the order they stand on disk, so that reading is sequential."""
        tensors = self.sources[ref].tensors
        return sorted(tensors, key=lambda name: (tensors[name].file, tensors[name].offset, name))

    def _target(self, cell: _Cell, seed: int) -> Target | None:
        """The output tensor with its expression; None where a problem was found or it is tied."""
        inputs = cell.slice_.inputs
        found = [find_tensor(self.sources[i.model], n) for i, n in zip(inputs, cell.names)]
        if None in found and self._head_is_optional(cell, inputs):
            return None
        guide = self._slice_reference(cell.slice_)
        guide_tensor = found[inputs.index(guide)]
        if guide not in inputs or guide_tensor is None:
            guide_tensor = self.sources[self.reference].tensors[cell.name]
        if guide_tensor.dtype not in FLOATS:
            return self._copied(cell, guide.model, guide_tensor)
        operands = []
        base = self._base(cell.slice_)
        for input_, name, tensor in zip(inputs, cell.names, found):
            if tensor is None:
                self._add_missing(cell, input_, name)
            elif tensor.shape != guide_tensor.shape or tensor.dtype not in FLOATS:
                self._add_unlike(cell, input_, tensor, guide.model, guide_tensor)
            else:
                params = self.parameters.of_input(
                    cell.slice_, input_, name, cell.t, is_base=input_.model == base
                )
                operands.append(Operand(self.numbers[input_.model], tensor, params))
        if len(operands) < len(inputs):
            return None
        expression = Expression(
            self.method.name,
            tuple(operands),
            self.parameters.of_merge(cell.slice_, cell.name, cell.t),
            next((k for k, i in enumerate(inputs) if i.model == base), None),
            self.recipe.dtype,
        )
        shape, dtype = guide_tensor.shape, self._dtype(operands)
        work = work_of(cell.name, shape, expression, seed)
        if not self.parameters.problems:
            self._check_together(work)
        if self._changes_nothing(work, expression, dtype):
            expression = Expression("copy", (Operand(operands[0].source, operands[0].tensor),))
        return Target(cell.name, dtype, shape, grain(self.method.row(work)), expression)

    def _check_together(self, work: Work) -> None:
        """Collect what the method says against the parameters of one tensor; once, not for each."""
        kind = f"The parameters of {self.method.name} do not go together"
        objection = self.method.objection(work)
        if objection and not any(problem.what == kind for problem in self.problems):
            self.problems.append(
                self.recipe.problem(
                    kind,
                    "parameters",
                    expected=objection,
                    found=f"otherwise, for {work.unit}",
                    fix="change them, or the filter or gradient that gives them at this tensor",
                )
            )

    def _changes_nothing(self, work: Work, expression: Expression, dtype: str) -> bool:
        """Whether the output is the bytes of its only operand."""
        own = expression.operands[0].tensor.dtype
        unrounded = own == dtype and expression.cast in (None, FLOATS[own])
        return unrounded and self.method.copies(work)

    def _dtype(self, operands: list[Operand]) -> str:
        """What the recipe asks for, else the narrowest type that holds all operands' values."""
        asked = self.recipe.out_dtype or self.recipe.dtype
        if asked:
            return BY_TORCH_NAME[asked]
        own = {operand.tensor.dtype for operand in operands}
        if len(own) == 1:
            return own.pop()
        return "F64" if "F64" in own else "F32"

    def _copied(self, cell: _Cell, ref: ModelRef, tensor: TensorInfo) -> Target:
        """Whole numbers and other types that cannot be averaged are the reference's own."""
        expression = Expression("copy", (Operand(self.numbers[ref], tensor),))
        return Target(cell.name, tensor.dtype, tensor.shape, grain(None), expression)

    def _head_is_optional(self, cell: _Cell, inputs: tuple[Input, ...]) -> bool:
        return is_tied_copy(self.sources[self.reference], cell.name) and not any(
            self.sources[i.model].tensors.get(n) and not is_tied_copy(self.sources[i.model], n)
            for i, n in zip(inputs, cell.names)
        )

    def _add_missing(self, cell: _Cell, input_: Input, name: str) -> None:
        similar = nearest(name, self.sources[input_.model].tensors)
        self._add_limited(
            "A tensor is missing",
            self.recipe.problem(
                f"A tensor is missing in {input_.model}",
                input_.path or cell.slice_.path,
                expected=f"{name}, as in the other models",
                found=f"no such tensor ({similar})" if similar else "no such tensor",
                fix="merge models of one architecture",
            ),
        )

    def _add_unlike(
        self, cell: _Cell, input_: Input, tensor: TensorInfo, guide: ModelRef, like: TensorInfo
    ) -> None:
        self._add_limited(
            "Shapes do not match",
            self.recipe.problem(
                f"Shapes do not match in tensor {cell.name}",
                input_.path or cell.slice_.path,
                expected=f"{like.dtype} {list(like.shape)}, as in {guide}",
                found=f"{tensor.dtype} {list(tensor.shape)} in {input_.model}",
                fix="merge models of one architecture and vocabulary",
            ),
        )

    def _add_limited(self, kind: str, problem: Problem) -> None:
        same = [p for p in self.problems if p.what.startswith(kind)]
        if len(same) < SHOWN:
            self.problems.append(problem)
        elif len(same) == SHOWN:
            self.problems.append(Problem(f"{kind} in more places", found="not all are listed"))

    def _origins(self, slices: list[Slice]) -> Iterator[LayerOrigin]:
        for slice_ in slices:
            start, stop = slice_.inputs[0].layer_range or (0, 0)
            for step in range(stop - start):
                yield LayerOrigin(
                    tuple(
                        (self.numbers[i.model], i.layer_range[0] + step)
                        for i in slice_.inputs
                        if i.layer_range
                    )
                )

    def _note_dropped(self, slices: list[Slice]) -> None:
        """Say which tensors of the other models the result does not keep."""
        if self.recipe.stacked:
            return
        kept = self.sources[self.reference].tensors.keys()
        for ref, source in self.sources.items():
            extra = sorted(n for n in source.tensors.keys() - kept if not is_tied_copy(source, n))
            if extra:
                self.notes.append(
                    f"{ref} has {len(extra)} tensors that {self.reference} lacks; "
                    f"the result is without them ({', '.join(extra[:3])}…)"
                )


def work_of(name: str, shape: tuple[int, ...], expression: Expression, seed: int) -> Work:
    """An expression as a method sees it."""
    return Work(
        shape=shape,
        params=expression.params,
        per_model=tuple(operand.params for operand in expression.operands),
        base=expression.base,
        unit=name,
        seed=seed,
    )


def grain(row: int | None) -> int:
    """Elements of a block, of whole rows where there are rows that must not be split."""
    if not row:
        return model.BLOCK
    return row * max(1, model.BLOCK // row)
