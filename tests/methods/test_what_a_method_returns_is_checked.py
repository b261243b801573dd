"""A method of the user that returns something else than a block stops the run, and is resumed.

Nothing of what it returned is in the model: with one line of an example changed, a merge ended
"done" with bytes of neither model.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from merging import Told, merge, shards_of, working_in
from tiny_models import write_family

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.ledger.run_store import RunStore
from resumerge.methods import METHODS, load_methods
from resumerge.options import Options

RECIPE = "merge_method: mine\nmodels: [{model: math}, {model: code}]\n"

METHOD = """
import torch
from resumerge import kernels
from resumerge.methods import KernelMethod, Method

class Mine(Method):
    name, summary = "mine", "the mean"

    def interrupt(self):
        raise KeyboardInterrupt

    def passes(self, tensor):
        return {passes}

    def row_elements(self, tensor):
        return {row}

    def is_copy(self, tensor):
        return {is_copy}

    def statistics(self, tensor, scan):
        return list(scan(lambda inputs, block: {partial}))

    def block(self, tensor, inputs, block, statistics):
        mean = (inputs[0] + inputs[1]) / 2
        return {result} if "layers.3" in tensor.name else {rest}

class OfKernels(KernelMethod):
    name, summary = "of_kernels", "the mean"

    def passes(self, tensor):
        return {passes}

    def statistics(self, tensor, scan):
        return list(scan(lambda inputs, run: {partial}))

    def compute(self, tensor, inputs, run, statistics, out):
        kernels.weighted_sum(inputs, {weights}, {out})
        return {returned}
"""

RIGHT = {
    "passes": "1",
    "row": "None",
    "is_copy": "False",
    "partial": "0",
    "result": "mean",
    "rest": "mean",
    "weights": "[0.5, 0.5]",
    "out": "out",
    "returned": "None",
}

Use = Callable[..., None]


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Use]:
    """Yield a function that loads the method with other answers, in place of the one before."""
    methods, origins, loaded = METHODS._methods, METHODS._origins, METHODS._loaded

    def load(**answers: str) -> None:
        METHODS._methods, METHODS._origins, METHODS._loaded = {**methods}, {**origins}, {*loaded}
        (tmp_path / "mine.py").write_text(METHOD.format_map(RIGHT | answers))
        load_methods([tmp_path / "mine.py"])

    yield load
    METHODS._methods, METHODS._origins, METHODS._loaded = methods, origins, loaded


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches short, so that the tensors before the failing one are committed."""
    monkeypatch.setattr("resumerge.engine.execute.scheduler.BATCH_SECONDS", 0.0005)


WRONG_RESULTS = [
    ({"result": "mean[:-1]"}, "of shape (15,)"),
    ({"result": "mean.repeat(2)"}, "of shape (32,)"),
    ({"result": "mean.reshape(-1, 4)"}, "of shape (4, 4)"),
    ({"result": "mean[:1]"}, "of shape (1,)"),
    ({"result": "mean.sum()"}, "of shape ()"),
    ({"result": "mean.double()"}, "torch.float64"),
    ({"result": "mean.bfloat16()"}, "torch.bfloat16"),
    ({"result": "mean.to('meta')"}, "meta"),
    ({"result": "mean.to_sparse()"}, "Tensor"),
    ({"result": "mean.numpy()"}, "ndarray"),
    ({"result": "None"}, "NoneType"),
    ({"result": "mean / statistics.norm"}, "AttributeError: 'NoneType' object has no attribute"),
    ({"result": "1 / 0"}, "ZeroDivisionError: division by zero (mine.py, line 26)"),
    ({"result": "mean * float('nan')"}, "NaN or infinity (block() in mine.py, line 24)"),
    ({"result": "mean / 0"}, "NaN or infinity"),
    ({"result": "__import__('sys').exit(3)"}, "SystemExit: 3 (mine.py, line 26)"),
    ({"result": "self.interrupt()"}, "KeyboardInterrupt (mine.py, line 10)"),
    ({"result": "self.block(tensor, inputs, block, statistics)"}, "RecursionError"),
    ({"result": "open('not there')"}, "No such file or directory: 'not there' (mine.py, line 26)"),
    ({"passes": "2", "partial": "1 / 0"}, "ZeroDivisionError"),
    ({"passes": "2", "partial": "inputs[0]"}, "a view of an input"),
    ({"passes": "2", "partial": "[inputs[1][3:7].view(2, 2)]"}, "a view of an input"),
]
WRONG_RUNS = [
    ({"returned": "out"}, "expected: None: results go to `out`\n  found:    Vector (compute()"),
    ({"returned": "out.data"}, "found:    ndarray, float32"),
    ({"returned": "torch.zeros(16)"}, "found:    Tensor, torch.float32"),
    ({"weights": "[float('inf'), 1.0]"}, "NaN or infinity (compute() in mine.py, line 37)"),
    ({"out": "kernels.new_vector(len(out))"}, "NaN or infinity"),
    ({"weights": "[1.0]"}, "ValueError: weights: expected 2 elements, found 1 (mine.py, line 38)"),
    ({"weights": "['1', '2']"}, "TypeError"),
    ({"returned": "1 / 0"}, "ZeroDivisionError: division by zero (mine.py, line 39)"),
    ({"passes": "2", "partial": "1 / 0"}, "ZeroDivisionError"),
    ({"passes": "2", "partial": "inputs[0]"}, "a view of an input"),
    ({"passes": "2", "partial": "[inputs[1].data[1:]]"}, "a view of an input"),
]


@pytest.mark.parametrize(
    ("method", "answers", "found"),
    [
        *(("mine", *wrong) for wrong in WRONG_RESULTS),
        *(("of_kernels", *wrong) for wrong in WRONG_RUNS),
    ],
)
def test_a_wrong_block_stops_the_run_and_is_named(
    method: str, answers: dict[str, str], found: str, models: Path, tmp_path: Path, use: Use
) -> None:
    use(**answers)
    with pytest.raises(Resumable) as stopped:
        merge(models, RECIPE.replace("mine", method), tmp_path / "out")
    message = str(stopped.value)
    assert stopped.value.reason == "method"
    assert f"'{method}'" in message
    assert ".weight" in message
    assert found in message
    assert not list((tmp_path / "out").glob("*.safetensors"))


def test_a_failed_allocation_names_the_method(models: Path, tmp_path: Path, use: Use) -> None:
    use(result="torch.empty(10**15)")
    with pytest.raises(Resumable, match=r"in your method 'mine', mine\.py, line 26") as stopped:
        merge(models, RECIPE, tmp_path / "out")
    assert stopped.value.reason == "memory"


@pytest.mark.parametrize(
    "answers",
    [
        {"row": "-1"},
        {"row": "0"},
        {"row": "2.5"},
        {"row": "1 / 0"},
        {"passes": "None"},
        {"is_copy": "True"},  # of two models
    ],
)
def test_an_impossible_answer_is_refused_when_planning(
    answers: dict[str, str], models: Path, tmp_path: Path, use: Use
) -> None:
    use(**answers)
    with pytest.raises(InputError, match=r"method 'mine'"):
        merge(models, RECIPE, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small_batches")
def test_a_mended_method_computes_everything_again(models: Path, tmp_path: Path, use: Use) -> None:
    """What was committed came from other code: the bytes are those of the mended method alone."""
    out, options = tmp_path / "out", Options(state_dir=tmp_path / "out.state")
    use(result="mean[:-1]")
    with pytest.raises(Resumable):
        merge(models, RECIPE, out, threads=1)
    with pytest.raises(Resumable):  # the same code again
        merge(models, RECIPE, out, threads=1)
    assert _committed(tmp_path) > 0
    use(rest="2 * mean")
    with working_in(models):
        Session(options).resume(str(out))
    use(rest="2 * mean")
    merge(models, RECIPE, tmp_path / "whole")
    assert shards_of(out) == shards_of(tmp_path / "whole")
    use(rest="3 * mean")  # of a finished run, which no method stopped
    with pytest.raises(InputError, match="changed since the run was created"):
        merge(models, RECIPE, out)


@pytest.mark.usefixtures("small_batches")
def test_a_mended_method_of_a_stage_is_not_taken_for_the_results(
    models: Path, tmp_path: Path, use: Use
) -> None:
    out, told = tmp_path / "out", Told()
    last = "merge_method: linear\nmodels: [{model: first, parameters: {weight: 1}}]\n"
    use(result="mean[:-1]")
    with pytest.raises(Resumable):
        merge(models, f"name: first\n{RECIPE}---\n{last}", out, threads=1)
    use(rest="2 * mean")
    with working_in(models):
        Session(Options(state_dir=tmp_path / "out.state"), told).resume(str(out))
    [note] = [note for note in told.notes if "changed since it failed" in note]
    assert "linear" not in note


@pytest.mark.usefixtures("small_batches")
def test_a_method_that_failed_for_another_reason_goes_on(
    models: Path, tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is the same, so the run continues when what the code needs is there again."""
    use(result="mean * float(__import__('os').environ['FACTOR'])")
    with pytest.raises(Resumable, match="KeyError"):
        merge(models, RECIPE, tmp_path / "out", threads=1)
    committed = _committed(tmp_path)
    monkeypatch.setenv("FACTOR", "1")
    merge(models, RECIPE, tmp_path / "out")
    runs = RunStore(tmp_path / "out.state").runs()
    assert len(runs) == 1
    assert committed > 0


def test_the_last_line_is_the_command_that_resumes(models: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD.format_map(RIGHT | {"result": "mean[:-1]"}))
    (models / "recipe.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "resumerge", "run", "recipe.yaml", "out"]
    environment = {**os.environ, "RESUMERGE_METHODS": str(tmp_path / "mine.py")}
    ended = subprocess.run(command, cwd=models, env=environment, capture_output=True, text=True)
    assert ended.returncode == 75
    assert ended.stderr.splitlines()[-1].startswith("resumerge resume out-")
    assert "expected: Tensor, torch.float32, cpu, of shape (16,)" in ended.stderr
    (tmp_path / "mine.py").write_text(METHOD.format_map(RIGHT))
    resumed = ended.stderr.splitlines()[-1].split()
    again = [sys.executable, "-m", *resumed]
    assert subprocess.run(again, cwd=models, env=environment, check=False).returncode == 0


def _committed(tmp_path: Path) -> int:
    """Return the number of committed units of the only run."""
    from resumerge.ledger import LEDGER_FILE, Ledger

    [run] = RunStore(tmp_path / "out.state").runs()
    ledger = Ledger(run / LEDGER_FILE, read_only=True)
    try:
        return ledger.totals().units_committed
    finally:
        ledger.close()
