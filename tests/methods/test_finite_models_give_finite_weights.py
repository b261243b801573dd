"""Promise: what float32 cannot hold on the way does not spoil a result that the output can hold.

Every method has the same result for models that are smaller by a power of two, times that power: it
is compared with that, where nothing overflows, up to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vector_runs import part_of, runs_of

from resumerge.kernels.blocks import sampled
from resumerge.methods import METHODS, BlockRun, KernelMethod, TensorContext
from resumerge.methods.base import REQUIRED
from resumerge.native import Vector, _kernels, instruction_sets, use

SHAPE = (12, 16)
ROWS_OF_A_BLOCK = 4
SMALLER = 2.0**-40
LARGEST = 3.4e38
GIVEN: dict[str, Sequence[float]] = {
    "weight": (0.6, 0.9, -0.3, 0.4),
    "density": (0.5, 0.6, 0.55, 0.7),
    "t": (0.3,),
    "select_topk": (0.5,),
    "scale": (0.5,),
    "eps": (0.0,),
}
"""Values that make a method do all that it does; other parameters have their defaults."""
LENGTHS = {("nearswap", "t"), ("ram", "epsilon"), ("ramplus_tl", "epsilon")}
"""The parameters that are compared with elements."""
BY_TORCH = {"arcee_fusion", "iso_c"}
"""Methods without kernels: the run reports infinities in their results."""


@dataclass(frozen=True)
class Case:
    """A method with parameters.

    Attributes:
        method: its name.
        switched: the parameters that are on or off, and the other way round than by default.
        has_base: whether there is a base model.
    """

    method: str
    switched: tuple[str, ...]
    has_base: bool

    def __str__(self) -> str:
        return "-".join((self.method, *self.switched, *["base"] * self.has_base))

    def context(self, unit: float = 1.0) -> TensorContext:
        """Return the facts about a tensor of some models, of which the last may be the base.

        Args:
            unit: the factor on the models, and so on lengths.
        """
        declared = METHODS[self.method]
        fewest = declared.fewest + (self.has_base and declared.base == "optional")
        most = declared.most and declared.most + (self.has_base and declared.base == "optional")
        count = max(fewest, min(4, most or 4))
        base = count - 1 if self.has_base else None

        def value(parameter: Any, number: int) -> Any:
            if parameter.name in self.switched:
                return not parameter.default if parameter.kind == "bool" else parameter.default
            some = GIVEN.get(parameter.name, (parameter.default,))
            assert some[0] is not REQUIRED, f"{parameter.name} of {self.method}: give a value here"
            found = some[number % len(some)]
            return found * unit if (self.method, parameter.name) in LENGTHS else found

        whole = [p for p in declared.parameters if not p.per_model]
        each = [p for p in declared.parameters if p.per_model]
        per_model = tuple(
            {} if i == base else {p.name: value(p, i) for p in each} for i in range(count)
        )
        params = {p.name: value(p, 0) for p in whole}
        return TensorContext(
            shape=SHAPE,
            params=params,
            per_model=per_model,
            base=base,
            name="x.weight",
            seed=7,
            bits=32,
        )


def cases() -> Iterator[Case]:
    """Yield every method, with each of its switches on and off, with and without a base."""
    for name in METHODS.built_in:
        declared = METHODS[name]
        switches = [p.name for p in declared.parameters if p.kind == "bool"]
        switches = [name for name in switches if name != "int8_mask"]
        bases = {"none": (False,), "optional": (False, True), "required": (True,)}[declared.base]
        for on, has_base in product(product((False, True), repeat=len(switches)), bases):
            switched = tuple(name for name, is_on in zip(switches, on) if is_on)
            yield Case(name, switched, has_base)
    yield Case("sce", ("select_topk",), True)


CASES = {str(case): case for case in cases() if case.method not in BY_TORCH}


def merged(asked: TensorContext, case: Case, models: np.ndarray, together: int) -> np.ndarray:
    """Merge whole vectors by a method, in runs of so many blocks."""
    method = METHODS[case.method]
    assert isinstance(method, KernelMethod)
    vectors = [Vector(model) for model in models]
    row = method.row_elements(asked) or SHAPE[-1]
    size = max(row, row * (ROWS_OF_A_BLOCK * SHAPE[-1] // row))

    def scan(function: Any, sample: bool = False) -> Iterator[Any]:
        for place, run in runs_of(asked.numel, size, together):
            if not sample:
                yield function([part_of(vector, place) for vector in vectors], run)
                continue
            firsts = [
                slice(place.start + b.start, place.start + b.start + sampled(b.stop - b.start))
                for b in run.blocks()
            ]
            few = sum(part.stop - part.start for part in firsts)
            here = [part_of(vector, *firsts) for vector in vectors]
            yield function(here, BlockRun(run.first, sampled(size), few, size))

    statistics = method.statistics(asked, scan) if method.passes(asked) > 1 else None
    out = np.zeros(asked.numel, np.float32)
    for place, run in runs_of(asked.numel, size, together):
        here = [part_of(vector, place) for vector in vectors]
        method.compute(asked, here, run, statistics, Vector(out[place]))
    return out


def wild(random: np.random.Generator, count: int, share: float, largest: float) -> np.ndarray:
    """Return models that `SMALLER` makes ordinary, but for some elements of the largest size."""
    base = 0.02 * random.standard_normal(SHAPE[0] * SHAPE[1])
    models = (base + 0.01 * random.standard_normal((count, base.size))) / SMALLER
    signs = random.choice((-1.0, 1.0), models.shape)
    extremes = signs * random.uniform(0.4, 1.0, models.shape) * largest
    return np.where(random.random(models.shape) < share, extremes, models).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.02, 0.3, 1.0]),
    largest=st.floats(1e37, LARGEST),
)
@example(seed=0, share=1.0, largest=LARGEST)
@example(seed=0, share=0.3, largest=LARGEST)
def test_a_result_that_float32_holds_is_there_and_another_is_infinite(
    name: str, seed: int, share: float, largest: float
) -> None:
    case = CASES[name]
    random = np.random.default_rng(seed)
    models = wild(random, len(case.context().per_model), share, min(largest, _largest(case)))
    small = merged(case.context(), case, models * np.float32(SMALLER), 1)
    with np.errstate(over="ignore"):
        expected = (small.astype(np.float64) / SMALLER).astype(np.float32)
    runs = [merged(case.context(1 / SMALLER), case, models, together) for together in (1, 2, 3)]
    assert all(np.array_equal(runs[0].view(np.uint8), run.view(np.uint8)) for run in runs)
    np.testing.assert_array_equal(runs[0], expected)


def _largest(case: Case) -> float:
    """Return the largest number that a method puts in order: what is infinite is equally large."""
    if case.method == "sce" and not case.switched:  # by variances
        return 1e18
    declared = {p.name for p in METHODS[case.method].parameters}
    return 1e38 if "density" in declared and not case.method.startswith("dare") else LARGEST


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity and minus infinity added up
@pytest.mark.parametrize("name", CASES)
def test_a_flag_that_is_up_without_need_changes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers may compute what is not used, and processors then report its overflow."""
    case = CASES[name]
    random = np.random.default_rng(3)
    models = wild(random, len(case.context().per_model), 0.0, LARGEST) * np.float32(SMALLER)
    special = random.choice(np.array([np.inf, -np.inf, np.nan, 1e-42, 0.0], "f4"), models.shape)
    models = np.where(random.random(models.shape) < 0.05, special, models)
    expected = merged(case.context(), case, models, 2)
    for kernel, function in list(vars(_kernels).items()):
        if callable(function) and not isinstance(function, type):
            monkeypatch.setattr(_kernels, kernel, _always_overflowing(function))
    found = merged(case.context(), case, models, 2)
    assert np.array_equal(found.view(np.uint8), expected.view(np.uint8))


def _always_overflowing(function: Any) -> Any:
    """Return a function whose flag is always up, if it returns one."""

    def call(*arguments: Any) -> Any:
        found = function(*arguments)
        return True if found is False else found

    return call


@pytest.mark.parametrize("instructions", instruction_sets())
def test_all_processors_have_the_same_result(instructions: str) -> None:
    case = CASES["multislerp-base"]
    models = wild(np.random.default_rng(1), len(case.context().per_model), 0.3, LARGEST)
    expected = merged(case.context(), case, models, 1)
    try:
        use(instructions)
        assert np.array_equal(merged(case.context(), case, models, 3), expected)
    finally:
        use(instruction_sets()[-1])
