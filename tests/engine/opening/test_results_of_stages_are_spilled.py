"""Promise: a stage's result is spilled where that is faster; the output does not depend on it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from merging import merge, shards_of, working_in
from stage_recipes import RECIPES
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.kernels import BlockRun
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.planning.stage_results import spilled as spilling
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage
from resumerge.tensors import Merged, Stored, spilled_in

ROWS = 19_000
EMBEDDINGS = {"model.embed_tokens.weight", "lm_head.weight"}
"""The tensors of more than one block."""


def document(name: str, method: str, *models: str) -> str:
    text = f"name: {name}\n" if name else ""
    text += f"merge_method: {method}\ndtype: float32\nmodels:\n"
    density = ", density: 0.5" if method == "ties" else ""
    for number, model in enumerate(models):
        text += f"  - {{model: {model}, parameters: {{weight: 0.{4 + number}{density}}}}}\n"
    return text + ("base_model: base\n" if method == "ties" else "")


def recipe(*documents: str) -> str:
    return "---\n".join(documents)


TIES = document("inner", "ties", "math", "code")
TIES_OF_TIES = recipe(TIES, document("", "ties", "inner", "code"))
USED_TWICE = recipe(
    TIES,
    document("left", "linear", "inner", "code"),
    document("right", "linear", "inner", "math"),
    document("", "linear", "left", "right", "inner"),
)
READ_ONCE = recipe(TIES, document("", "linear", "inner", "code"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("family")
    write_family(folder, {**LLAMA, "num_hidden_layers": 2, "vocab_size": ROWS})
    return folder


def planned(family: Path, text: str, **options: Any) -> Plan:
    with working_in(family):
        return Session(Options(**options)).plan(parse_recipe(text))


def spilled(plan: Plan) -> list[str]:
    return [node.name for unit in plan.units for node in spilled_in(unit.expression)]


@pytest.mark.parametrize("text", [TIES_OF_TIES, USED_TWICE], ids=["passes", "consumers"])
def test_what_is_dear_and_read_several_times_is_spilled(family: Path, text: str) -> None:
    assert set(spilled(planned(family, text))) == EMBEDDINGS, "what is small is not worth a file"
    assert spilled(planned(family, text, materialize="never")) == []
    assert len(spilled(planned(family, text, materialize="always"))) >= 20


def test_what_is_read_once_is_not(family: Path) -> None:
    assert spilled(planned(family, READ_ONCE)) == []
    before, last = READ_ONCE.rsplit("dtype: float32", 1)
    assert spilled(planned(family, f"{before}dtype: bfloat16{last}")) == [], (
        "nor through a rounding"
    )


def test_a_method_of_whole_matrices_computes_each_once(
    family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next stage reads a large matrix in parts, and each part needs the whole matrix."""
    monkeypatch.setattr(spilling, "_BLOCK_RUN", 4096)
    iso = "name: inner\nmerge_method: iso_c\nbase_model: base\nmodels: [{model: math}]\n"
    found = spilled(planned(family, recipe(iso, document("", "linear", "inner", "code"))))
    assert set(found) == EMBEDDINGS, "what the next stage reads whole is not worth a file"
    whole = iso.partition("\n")[2].replace("math", "inner")
    assert spilled(planned(family, recipe(iso, whole))) == []


def test_what_a_spilled_result_is_computed_of_is_read_once(family: Path) -> None:
    """The operands of a spilled result are read once, however often the result is read."""
    text = recipe(
        TIES,
        document("middle", "linear", "inner", "code"),
        document("left", "linear", "middle", "code"),
        document("right", "linear", "middle", "math"),
        document("", "linear", "left", "right", "middle"),
    )
    assert sorted(spilled(planned(family, text))) == sorted(EMBEDDINGS)


def test_what_is_cheap_to_compute_is_not(family: Path) -> None:
    """Computing a sum of two models takes hardly longer than reading it."""
    text = recipe(
        document("sum", "linear", "math", "code"),
        document("other", "linear", "sum", "code"),
        document("", "linear", "other", "sum"),
    )
    assert spilled(planned(family, text)) == []
    assert set(spilled(planned(family, text, materialize="always"))) > EMBEDDINGS
    stock = "merge_method: passthrough\nmodels: [{model: base}]\nname: copy\n"
    text = recipe(stock, document("", "ties", "copy", "code"))
    assert spilled(planned(family, text, materialize="always")) == [], "nothing is computed"


def test_it_is_computed_once(family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, compute = 0, Merged._compute

    def counting(merged: Merged, evaluation: Any, run: BlockRun, out: Any) -> None:
        nonlocal computed
        is_inner = all(isinstance(operand, Stored) for operand in merged.operands)
        computed += run.length if is_inner and merged.name in EMBEDDINGS else 0
        compute(merged, evaluation, run, out)

    monkeypatch.setattr(Merged, "_compute", counting)
    elements = len(EMBEDDINGS) * ROWS * LLAMA["hidden_size"]
    merge(family, TIES_OF_TIES, tmp_path / "once", materialize="always")
    assert computed == elements
    merge(family, TIES_OF_TIES, tmp_path / "again", materialize="never")
    assert computed >= 3 * elements, "for the passes of the outer TIES"


def test_it_is_in_the_estimates_and_in_the_plan(family: Path) -> None:
    never, plan = planned(family, USED_TWICE, materialize="never"), planned(family, USED_TWICE)
    nbytes = ROWS * LLAMA["hidden_size"] * 4
    assert estimate(plan).scratch == 2 * nbytes, "one of a unit, and one of the next"
    assert estimate(plan).disk == estimate(never).disk + 2 * nbytes

    assert estimate(plan).time.milliseconds < estimate(never).time.milliseconds
    [note] = estimate(plan).notes
    assert note.startswith("2 tensors of stages are written to scratch files")


class WithoutScratch(Storage):
    """A filesystem that has no files without a name."""

    asked = 0

    def scratch(self, folder: Path) -> int:
        WithoutScratch.asked += 1
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")


class FullForScratch(Storage):
    """A disk that has room for the output alone."""

    def __init__(self) -> None:
        self.files: set[int] = set()
        self.asked = 0

    def scratch(self, folder: Path) -> int:
        self.files.add(found := super().scratch(folder))
        return found

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if fd in self.files and len(data) > 1_000_000:
            self.asked += 1
            self.files.discard(fd)  # its number is another file's next
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data, offset)


@pytest.mark.parametrize("storage", [WithoutScratch, FullForScratch])
def test_without_room_it_is_computed_again(
    family: Path, tmp_path: Path, storage: Callable[[], Any]
) -> None:
    config, disk = tmp_path / "recipe.yaml", storage()
    config.write_text(TIES_OF_TIES)
    options = Options(state_dir=tmp_path / "state", materialize="always")
    with working_in(family):
        Session(options, Reporter(), disk).run(config, tmp_path / "out")
    assert disk.asked
    alone = merge(family, TIES_OF_TIES, tmp_path / "alone", materialize="never")
    assert shards_of(tmp_path / "out") == shards_of(alone)


def test_nothing_is_left_on_the_disk(family: Path, tmp_path: Path) -> None:
    out = merge(family, TIES_OF_TIES, tmp_path / "out", materialize="always")
    alone = merge(family, TIES_OF_TIES, tmp_path / "alone", materialize="never")
    names = [sorted(path.name for path in folder.rglob("*")) for folder in (out, alone)]
    assert names[0] == names[1]


@pytest.fixture
def interrupted(family: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the output of a run with `--materialize always` that stopped before its seal."""

    class Stopping(Storage):
        def rename(self, source: Path, target: Path) -> None:
            if target.suffix == ".safetensors":
                raise OSError(errno.EIO, "Input/output error")
            super().rename(source, target)

    config = tmp_path / "recipe.yaml"
    config.write_text(TIES_OF_TIES)
    options = Options(state_dir=tmp_path / "state", materialize="always")
    with working_in(family), pytest.raises(resumerge.Resumable):
        Session(options, Reporter(), Stopping()).run(config, tmp_path / "out")
    yield tmp_path / "out"


@pytest.mark.parametrize("how", [None, "never", "auto"])
def test_a_run_goes_on_however_it_is_told_to(
    family: Path, tmp_path: Path, interrupted: Path, how: str | None
) -> None:
    options = Options(state_dir=tmp_path / "state", materialize=how)
    with working_in(family):
        Session(options).resume(str(interrupted))
    alone = merge(family, TIES_OF_TIES, tmp_path / "alone", materialize="never")
    assert shards_of(interrupted) == shards_of(alone)


def test_another_word_is_refused(family: Path, tmp_path: Path) -> None:
    with pytest.raises(resumerge.InputError, match="auto, always or never"):
        merge(family, RECIPES["linear of linear"], tmp_path / "out", materialize="sometimes")
