"""Promise: a task needs a small plan only; its shard is journaled only if it is as recorded."""

from __future__ import annotations

import json
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest
import torch
from dense_models import CONFIGS, EXPERTS, write_dense
from merging import shards_of, working_in
from safetensors.torch import save_file
from shard_tasks import RECIPES, Shards
from streamed_models import ServedFile, serve_local_models
from tiny_models import LLAMA, write_family
from waiting import HANGS_SECONDS

from resumerge.engine.checks.cluster import check_cluster
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned
from resumerge.engine.cluster.exchange.folder import FolderEndpoint, read_beat
from resumerge.engine.cluster.outcomes import Failed, Node
from resumerge.engine.cluster.retries import Tries, stops_the_run
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.lifecycle.abandon_output import abandon_output
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.published import remove_tasks
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import TASKS
from resumerge.errors import Interrupted, Reason
from resumerge.options import Options
from resumerge.planning import estimate
from resumerge.planning.versions import Versions
from resumerge.recipe import load_recipe
from resumerge.recipe.types import ModelRef
from resumerge.sources.remote.files import on_this_machine
from resumerge.sources.types import Source, SourceFile
from resumerge.storage import Storage
from resumerge.tensors import Stored, stored_in


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_shard_has_the_bytes_of_the_whole(models: Path, tmp_path: Path, recipe: str) -> None:
    shards = Shards(models, RECIPES[recipe], tmp_path)
    assert len(shards.plan.shards) > 2
    for shard in reversed(shards.plan.shards):
        shards.compute(shard.number)
    assert shards_of(shards.out) == shards_of(shards.whole)
    assert {path.suffix for path in shards.attempt.iterdir()} == {".json"}, "records alone are left"
    assert shards.adopt() == [shard.number for shard in shards.plan.shards]
    assert not (shards.out / TASKS).exists()
    assert not shards.ledger.shards.open()
    assert shards.ledger.units.measurements() == shards.measurements
    assert bool(shards.measurements) == (recipe != "copies")
    shards.ledger.check_rows()


def test_gates_of_an_embedding_are_made_by_each_task(tmp_path: Path) -> None:
    write_dense(tmp_path, CONFIGS["mistral"])
    recipe = "base_model: ./base\ngate_mode: {}\n" + EXPERTS
    (run := tmp_path / "run").mkdir()
    shards = Shards(tmp_path, recipe.format("cheap_embed"), run)
    assert not check_cluster(Options(ray="local"), shards.plan, estimate(shards.plan), None)
    for shard in shards.plan.shards:
        shards.compute(shard.number)
    assert shards_of(shards.out) == shards_of(shards.whole)


def test_gates_of_hidden_states_are_one_machines(tmp_path: Path) -> None:
    """Gates from hidden states have bits that depend on the processor."""
    write_dense(tmp_path, CONFIGS["mistral"])
    with working_in(tmp_path):
        (tmp_path / "moe.yaml").write_text("base_model: ./base\ngate_mode: hidden\n" + EXPERTS)
        session = Session(Options(state_dir=tmp_path / "state"))
        plan = session.plan(load_recipe(tmp_path / "moe.yaml"))
    [problem] = check_cluster(Options(ray="local"), plan, estimate(plan), None)
    assert problem.what == "Gates from hidden states are computed by one machine"


def test_a_plan_of_a_shard_is_small(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["ties"], tmp_path)
    sizes = [len(pickle.dumps(shard_plan(shards.plan, s.number))) for s in shards.plan.shards]
    assert max(sizes) < len(pickle.dumps(shards.plan)) / 2


def with_adapter(models: Path, folder: Path) -> Path:
    """Make a folder with the models, and with an adapter of one module of `math`."""
    for path in models.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "adapter").mkdir()
    key, hidden = "base_model.model.model.layers.0.self_attn.o_proj", LLAMA["hidden_size"]
    matrices = {f"{key}.lora_A.weight": torch.ones(2, hidden)}
    matrices[f"{key}.lora_B.weight"] = torch.ones(hidden, 2)
    save_file(matrices, folder / "adapter" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["o_proj"]}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    return folder


ADAPTED = "merge_method: passthrough\nmodels: [{model: math+adapter}]\n"


def test_a_task_knows_the_files_that_it_reads_of_a_model_with_an_adapter(
    models: Path, tmp_path: Path
) -> None:
    """The plan of a shard has the remote files that it reads, with the tensors of their headers."""
    (folder := tmp_path / "models").mkdir()
    plan = Shards(with_adapter(models, folder), ADAPTED, tmp_path).plan
    [source] = plan.sources
    parts = {part: replace(getattr(source, part), kind="hub") for part in ("base", "adapter")}
    plan = replace(plan, sources=(replace(source, **parts),))
    several = set()
    for shard in plan.shards:
        of_shard = shard_plan(plan, shard.number)
        [sent] = of_shard.sources
        read = {s.file for unit in of_shard.units for s in stored_in(unit.expression)}
        assert sent.files.keys() == read
        for name, part in (("base", sent.base), ("adapter", sent.adapter)):
            assert part is not None
            files = {file.removeprefix(f"{name}/") for file in read if file.startswith(name)}
            assert part.files.keys() == files
            assert {t.file for t in stored(part)} == files
        several.add(frozenset(name.partition("/")[0] for name in read))
    assert several == {frozenset({"base"}), frozenset({"base", "adapter"})}


def stored(source: Source) -> Iterator[Stored]:
    return (found for tensor in source.tensors.values() for found in stored_in(tensor))


Damage = Callable[[Shards], None]


def other_byte(shards: Shards) -> None:
    path = shards.out / shards.plan.shards[1].name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut(shards: Shards) -> None:
    path = shards.out / shards.plan.shards[1].name
    path.write_bytes(path.read_bytes()[:-1])


def missing(shards: Shards) -> None:
    (shards.out / shards.plan.shards[1].name).unlink()


def record_of_another_run(shards: Shards) -> None:
    change_record(shards, lambda record: record | {"fingerprint": "0" * 64})


def record_with_fewer_units(shards: Shards) -> None:
    change_record(shards, lambda record: record | {"units": record["units"][1:]})


def record_that_is_none(shards: Shards) -> None:
    (shards.attempt / "1.json").write_text("[1, 2")


def record_without_end(shards: Shards) -> None:
    (shards.attempt / "1.json").write_text("[" * 200_000)


def change_record(shards: Shards, change: Callable[[dict], dict]) -> None:  # type: ignore[type-arg]
    path = shards.attempt / "1.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.parametrize(
    "damage",
    [
        other_byte,
        cut,
        missing,
        record_of_another_run,
        record_with_fewer_units,
        record_that_is_none,
        record_without_end,
    ],
)
def test_what_is_not_as_its_record_is_not_journaled(
    models: Path, tmp_path: Path, damage: Damage
) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    for number in (0, 1):
        shards.compute(number)
    damage(shards)
    assert shards.adopt() == [0]
    assert shards.plan.shards[1].name in shards.ledger.shards.open()
    assert not (shards.out / TASKS).exists()


def test_what_was_committed_first_is_kept(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    first = shards.compute(1).record.units[0]
    other = replace(first, hashes=bytes(len(first.hashes)))
    attempt = shards.ledger.attempts.start({"pid": 1, "host": "here", "boot_id": ""})
    shards.ledger.units.commit_batch(
        attempt, 1, [other], {"units_committed": 1, "bytes_committed": 1}
    )
    assert shards.adopt() == []
    assert shards.ledger.units.progress()[first.number].hashes == other.hashes
    assert not list(shards.out.iterdir()), "what contradicts it is no shard of this run"


def test_a_shard_that_another_task_published_is_compared(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    first = shards.compute(1)
    assert shards.compute(1).record.units[0].hashes == first.record.units[0].hashes
    other_byte(shards)
    failed = shards.outcome(1)
    assert isinstance(failed, Failed) and failed.reason == "hash_conflict"
    assert stops_the_run(failed) and first.record.units[-1].hashes[-16:].hex() in failed.message


def test_a_file_of_somebody_else_is_set_aside(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    path = shards.out / shards.plan.shards[1].name
    path.write_text("mine")
    shards.compute(1)
    assert path.with_name(path.name + ".kept").read_text() == "mine"
    assert shards.adopt() == [1]


def test_a_task_that_was_given_up_publishes_nothing(models: Path, tmp_path: Path) -> None:
    """A task whose folder is deleted leaves no record and renames no file."""
    shards = Shards(models, RECIPES["copies"], tmp_path)
    finished, [path] = shards.compute(1), [*shards.out.glob("*.safetensors")]
    path.write_text("mine")
    (shards.attempt / "1.json").unlink()
    endpoint = FolderEndpoint(shards.attempt, "late", 1, shards.out)
    with pytest.raises(TaskAbandoned):
        endpoint.publish(
            shard_plan(shards.plan, 1), finished.record, Beat(Node("n", "h")), lambda nbytes: None
        )
    assert path.read_text() == "mine" and not list(shards.attempt.iterdir())
    assert {file.name for file in shards.out.iterdir()} == {path.name, TASKS}


@pytest.mark.parametrize(
    "beat",
    ["[" * 200_000, '{"node": {"id": "n", "host": "h"}, "nbytes": "x"}', '{"node": {"id": []}}'],
)
def test_a_heartbeat_that_is_none(tmp_path: Path, beat: str) -> None:
    (tmp_path / "heartbeat.json").write_text(beat)
    assert read_beat(tmp_path) is None


def test_an_abandoned_run_leaves_nothing_of_its_tasks(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    shards.compute(0)
    (shards.attempt / "task").mkdir()
    (shards.attempt / "task" / "heartbeat.json").touch()
    abandon_output(shards.ledger, shards.ledger.path.parent, shards.out, Storage())
    assert not list(shards.out.iterdir())


def test_files_of_somebody_else_beside_those_of_tasks_stay(models: Path, tmp_path: Path) -> None:
    shards = Shards(models, RECIPES["copies"], tmp_path)
    shards.compute(0)
    mine = [shards.out / TASKS / name for name in ("notes.txt", "deadbeef/notes.txt", "0" * 15)]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert shards.adopt() == [0]
    remove_tasks(shards.out)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not shards.attempt.exists()


def test_a_task_that_waits_for_a_server_can_be_stopped(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, stop, ended = Shards(models, RECIPES["copies"], tmp_path), StopRequest(), Event()

    def silent(*range: object) -> NoReturn:
        stop.signum = signal.SIGTERM
        ended.wait(HANGS_SECONDS)
        raise AssertionError("nobody ended the request")

    serve_local_models(monkeypatch)
    monkeypatch.setattr(ServedFile, "request", silent)
    streamed = tuple(replace(source, streams=True) for source in shards.plan.sources)
    shards.plan = replace(shards.plan, sources=streamed)
    try:
        with pytest.raises(Interrupted):
            shards.outcome(0, stop)
        assert not (shards.attempt / "t0").exists()
    finally:
        ended.set()


def test_a_worker_looks_at_no_other_machines_cache() -> None:
    """A worker streams a file that the driver's machine has in its cache."""
    files = {"model.safetensors": SourceFile("model.safetensors", 1, {"etag": "x"}, present=True)}
    ref, elsewhere = ModelRef("org/model", "org/model"), Path("/elsewhere")
    source = Source(
        ref=ref,
        kind="hub",
        folder=elsewhere,
        revision="0" * 40,
        config={},
        tensors={},
        files=files,
        streams=True,
    )
    assert not source.is_streamed("model.safetensors")
    assert on_this_machine(source).is_streamed("model.safetensors")


def test_the_version_of_torch_counts_where_it_computes(models: Path, tmp_path: Path) -> None:
    """Torch also computes the product of an adapter's matrices."""
    (folder := tmp_path / "models").mkdir()
    adapted = Shards(with_adapter(models, folder), ADAPTED, tmp_path).plan
    (other := tmp_path / "other").mkdir()
    copied = Shards(models, RECIPES["copies"], other).plan
    assert [Versions.of_plan(plan).known.get("torch") for plan in (adapted, copied)] == [
        version("torch"),
        None,
    ]


def test_other_versions_are_named(models: Path, tmp_path: Path) -> None:
    here = Versions.of_plan(shard_plan(Shards(models, RECIPES["ties"], tmp_path).plan, 0))
    assert here.differences("at the driver") == []
    for name, value in (("resumerge", "0.0.0"), ("numerics", 0), ("block", 1)):
        [line] = replace(here, known={**here.known, name: value}).differences("at the driver")
        assert f"{name}: {value} at the driver, {here.known[name]} here" == line
    unknown = {**here.known, "merge method nobody_has": {"version": 1, "origin": "x.py"}}
    assert "none here" in replace(here, known=unknown).differences("at the driver")[0]


@pytest.mark.parametrize(
    ("reasons", "memories"),
    [
        (["lost", "lost", "lost"], [None, 500, 500]),
        (["oom", "lost", "lost"], [500, 500, 500]),
        (["error", "oom", "oom"], [None, 500, 500]),
    ],
)
def test_what_fails_is_tried_elsewhere_then_with_half_of_the_memory(
    reasons: list[str], memories: list[int | None]
) -> None:
    tries, seen = Tries(), []
    for number, reason in enumerate(reasons):
        assert tries.may_retry
        tries.record_failure(Failed(None, Reason(reason), ""), f"node{number}", 1000)
        seen.append(tries.memory)
    assert seen == memories and not tries.may_retry
    assert tries.nodes == {"node0", "node1", "node2"}


def test_what_no_machine_has_room_for_is_not_submitted_again() -> None:
    tries = Tries()
    tries.record_failure(Failed(None, Reason.UNSCHEDULED, ""), "", 0)
    assert not tries.may_retry


ANYWHERE = {Reason.SOURCE_CHANGED, Reason.HASH_CONFLICT}
ON_ONE_MACHINE = {
    *(Reason.DISK_FULL, Reason.MEMORY, Reason.OPEN_FILES, Reason.IO, Reason.NETWORK),
    *(Reason.SOURCE_UNAVAILABLE, Reason.SHARD_LOST, Reason.MIRROR, Reason.MIRROR_TAKEN_OVER),
    *(Reason.METHOD, Reason.CLUSTER, Reason.OOM, Reason.KILLED, Reason.CRASH),
    *(Reason.WORKER_STALLED, Reason.REFUSED, Reason.ERROR, Reason.LOST, Reason.TASK_SILENT),
    *(Reason.UNPUBLISHED, Reason.UNSCHEDULED, Reason.ABANDONED),
}
"""The reasons that need not concern other machines. A disk may hold temporary files alone."""


def test_what_would_happen_anywhere_stops_the_run() -> None:
    stopping = {reason for reason in Reason if stops_the_run(Failed(None, reason, ""))}
    assert stopping == ANYWHERE
    assert set(Reason) - stopping == ON_ONE_MACHINE
