"""Promise: what a method declares is true: how often it reads, what it holds, what it answers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_plans import llama, plan, tensor, units

from resumerge.errors import InputError, Interrupted
from resumerge.kernels.blocks import Block, BlockRun, sampled
from resumerge.methods import METHODS, Method, Parameter, TensorContext
from resumerge.methods.checked_answers import Answers, ask
from resumerge.methods.loading import VARIABLE, methods_in_file
from resumerge.methods.registry import Registry
from resumerge.native import Vector
from resumerge.tensors import Merged

HEAD, ROWS, WIDTH, STEP = "lm_head.weight", 50, 40, 10
SPARSE = "{weight: 1, density: 0.5, epsilon: 0.1, gamma: 0.1}"


def context(method: str, parameters: str, models: str = "abc", base: str = "a") -> TensorContext:
    """Return the facts about a matrix in a recipe for some models."""
    inputs = ", ".join(f"{{model: {name}}}" for name in models)
    recipe = f"merge_method: {method}\nmodels: [{inputs}]\nparameters: {parameters}\n"
    recipe += f"base_model: {base}\n" if base else ""
    head = [tensor(HEAD, (ROWS, WIDTH))]
    found = plan(recipe, *(llama(name, others=head) for name in models))
    merged = units(found)[HEAD].expression
    assert isinstance(merged, Merged)
    return merged.context


def reads(method: str, asked: TensorContext) -> int:
    """Count the readings of the inputs: by scans of `statistics`, and once for the blocks."""
    random = np.random.default_rng(3)
    arrays = random.standard_normal((len(asked.per_model), asked.numel)).astype(np.float32)
    size, found = STEP * WIDTH, 1
    by_torch = isinstance(METHODS[method], Method)

    def scan(function: Any, sample: bool = False) -> Iterator[Any]:
        nonlocal found
        found += 1
        for index in range(ROWS // STEP):
            length = sampled(size) if sample else size
            block = Block(index, index * size, index * size + length)
            parts = [array[block.start : block.stop].copy() for array in arrays]
            if by_torch:
                yield function([torch.from_numpy(part) for part in parts], block)
            else:
                yield function([Vector(part) for part in parts], BlockRun(index, length, length))

    if METHODS[method].passes(asked) > 1:
        METHODS[method].statistics(asked, scan)
    return found


@pytest.mark.parametrize(
    ("method", "parameters", "models", "base", "expected"),
    [
        ("linear", "{weight: 1}", "ab", "", 1),
        ("slerp", "{t: 0.5}", "ab", "a", 2),
        ("nuslerp", "{weight: 1}", "ab", "", 2),
        ("nuslerp", "{weight: 1, nuslerp_flatten: false}", "ab", "", 1),
        ("nuslerp", "{weight: 1, nuslerp_flatten: false, nuslerp_row_wise: true}", "ab", "", 2),
        ("multislerp", "{weight: 1}", "abc", "", 2),
        ("multislerp", "{weight: 1}", "ab", "a", 1),
        ("karcher", "{}", "ab", "", 2),
        ("model_stock", "{}", "abc", "a", 2),
        ("model_stock", "{filter_wise: true}", "abc", "a", 1),
        ("arcee_fusion", "{}", "ab", "a", 4),
        ("task_arithmetic", "{weight: 1}", "abc", "a", 1),
        ("ties", "{weight: 1}", "abc", "a", 1),
        ("ties", "{weight: 1, density: 0.5}", "abc", "a", 3),
        ("ties", "{weight: 1, density: 0.5, rescale: true}", "abc", "a", 4),
        ("breadcrumbs", SPARSE, "abc", "a", 3),
        ("breadcrumbs_ties", SPARSE, "abc", "a", 3),
        ("dare_linear", "{weight: 1, density: 0.5}", "abc", "a", 2),
        ("dare_ties", "{weight: 1, density: 0.5, rescale: false}", "abc", "a", 1),
        ("della", SPARSE, "abc", "a", 2),
        ("sce", "{select_topk: 0.5}", "abc", "a", 5),
        ("sce", "{select_topk: 1}", "abc", "a", 2),
        ("ramplus_tl", "{}", "abc", "a", 2),
        ("ram", "{}", "abc", "a", 1),
        ("consensus_ta", "{weight: 1}", "abc", "a", 1),
        ("iso_c", "{}", "abc", "a", 1),
    ],
)
def test_inputs_are_read_as_often_as_it_says(
    method: str, parameters: str, models: str, base: str, expected: int
) -> None:
    asked = context(method, parameters, models, base)
    assert METHODS[method].passes(asked) == expected
    assert reads(method, asked) == expected


@pytest.mark.parametrize(
    ("method", "parameters", "models", "base", "expected"),
    [
        ("nuslerp", "{weight: 1}", "ab", "", None),
        ("nuslerp", "{weight: 1, nuslerp_flatten: false}", "ab", "", WIDTH),
        ("nuslerp", "{weight: 1, nuslerp_flatten: false, nuslerp_row_wise: true}", "ab", "", WIDTH),
        ("model_stock", "{filter_wise: true}", "abc", "a", WIDTH),
        ("arcee_fusion", "{}", "ab", "a", WIDTH),
        ("della", SPARSE, "ab", "a", WIDTH),
        ("iso_c", "{}", "ab", "a", ROWS * WIDTH),
        ("ties", SPARSE, "ab", "a", None),
    ],
)
def test_rows_that_stay_together(
    method: str, parameters: str, models: str, base: str, expected: int | None
) -> None:
    assert METHODS[method].row_elements(context(method, parameters, models, base)) == expected


class Recorded(dict[str, Any]):
    """Parameters that record which of them are read."""

    def __init__(self, parameters: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(parameters)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def items(self) -> Any:
        self.read.update(self)
        return super().items()

    def values(self) -> Any:
        self.read.update(self)
        return super().values()


@pytest.mark.parametrize(
    "name", [name for name in METHODS.built_in if METHODS[name].not_in_statistics]
)
def test_statistics_read_no_parameter_that_they_do_not_depend_on(name: str) -> None:
    """The variants of a sweep that differ only in such parameters share their statistics."""
    method = METHODS[name]
    known = [parameter.name for parameter in method.parameters]
    given = {"weight": 1, "density": 0.5, "epsilon": 0.1, "gamma": 0.1, "rescale": "true"}
    given |= {"select_topk": 0.5, "t": 0.5}
    values = ", ".join(f"{key}: {value}" for key, value in given.items() if key in known)
    models = "abc"[: method.most or 3]
    asked = context(name, f"{{{values}}}", models, "a" if method.base == "required" else "")
    read: set[str] = set()
    reads(
        name,
        replace(
            asked,
            params=Recorded(asked.params, read),
            per_model=tuple(Recorded(params, read) for params in asked.per_model),
        ),
    )
    assert read & method.not_in_statistics == set()


def test_masks_that_are_needed_twice_are_held_bit_by_bit() -> None:
    for method, parameters, each in (
        ("dare_linear", "{weight: 1, density: 0.5}", 2),
        ("dare_linear", "{weight: 1, density: 1}", 0),
        ("dare_linear", "{weight: 1, density: 0.5, rescale: false}", 0),
        ("della", SPARSE, 2),
    ):
        found = METHODS[method].statistics_bytes(context(method, parameters))
        assert found == each * ROWS * WIDTH // 8, method


def test_masks_of_a_tensor_that_is_too_large_are_drawn_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = context("dare_linear", "{weight: 1, density: 0.5}")
    monkeypatch.setattr("resumerge.methods.task_vectors.base.MOST_MASKED", ROWS * WIDTH)
    assert METHODS["dare_linear"].statistics_bytes(asked) > 0
    monkeypatch.setattr("resumerge.methods.task_vectors.base.MOST_MASKED", ROWS * WIDTH - 1)
    assert METHODS["dare_linear"].statistics_bytes(asked) == 0


def test_what_selects_holds_a_sample_for_each_model_that_loses_elements() -> None:
    def held(method: str, parameters: str, models: str = "abc") -> int:
        return METHODS[method].statistics_bytes(context(method, parameters, models))

    assert held("ties", "{weight: 1, density: 1}") == 0
    assert held("ties", "{weight: 1, density: 0.5}", "ab") > 0
    assert held("ties", "{weight: 1, density: 0.5}", "ab") < held("ties", SPARSE)
    assert held("ties", SPARSE) < held("breadcrumbs", SPARSE), "two ranks of each"
    most, all_ = (f"{{weight: 1, density: 0.5, gamma: {g}}}" for g in (0.5, 1.0))
    assert held("breadcrumbs", most) == held("breadcrumbs", all_), "no more than there is"
    assert held("sce", "{select_topk: 1}") == 0 < held("sce", "{select_topk: 0.5}")
    assert held("arcee_fusion", "{}", "ab") > 4 * ROWS


# What a method may answer


class Odd(Method):
    """A method with the answers that its constructor gets."""

    name = "odd"
    summary = "for a test"

    def __init__(self, **answers: Any) -> None:
        for question, answer in answers.items():
            setattr(self, question, self._say(question, answer))

    @staticmethod
    def _say(question: str, answer: Any) -> Any:
        def say(tensor: TensorContext) -> Any:
            return answer

        say.__name__ = question
        return say

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        return inputs[0]


def asked(inputs: int = 2, shape: tuple[int, ...] = (4, 4)) -> TensorContext:
    return TensorContext(
        shape=shape, params={}, per_model=({},) * inputs, base=None, name="x", seed=0, bits=32
    )


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("passes", [1, 7], [0, -1, True, 1.0, None]),
        ("statistics_bytes", [0, 10], [-1, True, False, 1.5, None]),
        ("row_elements", [None, 1, 4], [0, -1, True, 2.5]),
        ("validate", [None, "other values", ""], [1, False, ["x"]]),
        ("is_copy", [False], [True, None, "no"]),
    ],
)
def test_an_answer_that_cannot_be_is_refused(
    question: str, right: list[Any], wrong: list[Any]
) -> None:
    for answer in right:
        ask(Odd(**{question: answer}), asked())
    for answer in wrong:
        with pytest.raises(InputError, match=rf"returned an invalid value(.|\n)*{question}\(\)"):
            ask(Odd(**{question: answer}), asked())


def test_only_one_model_can_be_copied() -> None:
    assert ask(Odd(is_copy=True), asked(1)) == Answers(None, None, True)


def test_nothing_is_asked_about_an_empty_tensor() -> None:
    assert ask(Odd(passes=0, row_elements=-1), asked(shape=(0, 4))) == Answers()


def test_a_failure_of_a_built_in_method_is_no_problem_of_the_user() -> None:
    broken = TensorContext(
        shape=(4, 4), params={}, per_model=({}, {}), base=None, name="x", seed=0, bits=32
    )
    with pytest.raises(KeyError):
        ask(METHODS["linear"], broken)


# Where methods come from

METHOD = """
from abc import abstractmethod
from resumerge.methods import Method
from resumerge.methods.averages.linear import Linear

class Nameless(Method):
    def block(self, tensor, inputs, block, statistics): ...

class Half(Method):
    name, summary = "half", "not whole"
    @abstractmethod
    def missing(self): ...

class Second(Linear):
    name, summary = "second", "two"

class First(Linear):
    name, summary = "first", "one"
"""


def test_a_file_has_the_whole_methods_that_it_defines_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    found = list(methods_in_file(file))
    assert [method.name for method, _ in found] == ["second", "first"]
    [origin] = {origin for _, origin in found}
    assert origin.startswith("mine.py, sha256 ") and len(origin) == len("mine.py, sha256 ") + 64
    file.write_text(METHOD + "\n# another\n")
    assert [o for _, o in methods_in_file(file)] != [origin, origin]
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "mine.py"
    copy.write_text(METHOD)
    assert {o for _, o in methods_in_file(copy)} == {origin}, "wherever it lies"


def test_a_file_that_does_not_run_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    before = set(sys.modules)
    with pytest.raises(InputError, match="failed to run"):
        methods_in_file(tmp_path / "mine.py")
    assert {name for name in set(sys.modules) - before if "resumerge_methods" in name} == set()


def test_a_signal_while_a_file_runs_is_no_fault_of_the_file(tmp_path: Path) -> None:
    text = "from resumerge.errors import Interrupted\nraise Interrupted('asked to stop')\n"
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(Interrupted):
        methods_in_file(tmp_path / "mine.py")


def test_the_same_file_by_another_path_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    (tmp_path / "link.py").symlink_to(tmp_path / "mine.py")
    registry = Registry()
    registry.load([tmp_path / "mine.py"])
    registry.load([tmp_path / "link.py", tmp_path / "." / "mine.py"])
    assert {"first", "second"} <= set(registry._methods)


def test_the_environment_may_be_empty_and_is_read_again_after_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert list(Registry()) is not None
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.py"))
    registry = Registry()
    for _ in range(2):
        with pytest.raises(InputError, match="contains no merge method"):
            registry["first"]
    (tmp_path / "mine.py").write_text(METHOD)
    assert registry["first"].name == "first"


def test_a_method_is_known_by_name_version_and_origin() -> None:
    registry = Registry()
    registry.add(Odd(), "here")
    assert registry.identity("odd") == {"name": "odd", "version": 1, "origin": "here"}
    assert METHODS.identity("della") == {"name": "della", "version": 2, "origin": "built in"}
    with pytest.raises(InputError, match="'odd' already exists"):
        registry.add(Odd(), "there")


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"summary": None}, "no summary"),
        ({"name": 3}, "no name"),
        ({"parameters": 5}, "not Parameter objects"),
        ({"parameters": (Parameter("radius", "size", low="a"),)}, "'radius' with an invalid"),
        ({"base": "sometimes"}, "base = 'sometimes'"),
        ({"fewest": "x"}, "fewest = 'x'"),
        ({"most": "x"}, "most = 'x'"),
        ({"version": None}, "version = None"),
    ],
)
def test_a_method_that_is_declared_wrongly_is_refused(answers: dict[str, Any], found: str) -> None:
    kind = type("Kind", (Odd,), answers)
    with pytest.raises(InputError, match=found):
        Registry().add(kind(), "here")


@pytest.mark.parametrize("method", METHODS.built_in)
def test_what_a_recipe_must_give_has_an_example(method: str) -> None:
    """`init` and the tests of every method use the example; a user's method may omit it."""
    for parameter in METHODS[method].parameters:
        if parameter.required or parameter.example is not None:
            assert parameter.example is not None, f"give {parameter.name} an example"
            assert parameter.low <= parameter.example <= parameter.high, parameter.name


def test_what_a_context_knows() -> None:
    given = ({"weight": 1.0}, {}, {"weight": 3.0})
    tensor_ = TensorContext(
        shape=(2, 3), params={}, per_model=given, base=1, name="x", seed=0, bits=32
    )
    assert (tensor_.numel, tensor_.others) == (6, [0, 2])
    assert tensor_.values("weight") == [1.0, 3.0]
    assert TensorContext(
        shape=(), params={}, per_model=given, base=None, name="x", seed=0, bits=32
    ).others == [0, 1, 2]
    assert math.isclose(
        TensorContext(
            shape=(), params={}, per_model=given, base=None, name="x", seed=0, bits=32
        ).numel,
        1,
    )
