"""Promise: the output is made of one version of each model, whatever happens to their files."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crashing import Bench, Ended, Merge
from retrained_models import FILE, moved_over, retrained, with_own_models

MODELS = ("base", "math", "code")


def moved_over_with_its_time(model: Path, data: bytes) -> None:
    """Give the name to a file with the same time, as `rsync -a` does."""
    stat = model.stat()
    fresh = model.with_suffix(".fresh")
    fresh.write_bytes(data)
    os.utime(fresh, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fresh.replace(model)


def overwritten(model: Path, data: bytes) -> None:
    model.write_bytes(data)


def overwritten_with_its_time(model: Path, data: bytes) -> None:
    """Overwrite the file and keep its time, as `cp -p` and `rsync -a --inplace` do."""
    stat = model.stat()
    with model.open("r+b") as file:
        file.write(data)
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))


WAYS = [moved_over, moved_over_with_its_time, overwritten, overwritten_with_its_time]
Way = Callable[[Path, bytes], None]


@pytest.fixture(scope="module")
def others(bench: Bench) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return other weights for each model, and the output of their merge."""
    merge = with_own_models(bench.merge())
    data = {}
    for name in MODELS:
        data[name] = retrained(merge.models / name / FILE)
        (merge.models / name / FILE).write_bytes(data[name])
    assert merge.run().code == 0
    output = merge.files()
    merge.remove()
    return data, output


def weights(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".safetensors")}


@pytest.mark.parametrize("way", WAYS)
def test_replaced_while_an_attempt_runs(
    bench: Bench,
    others: tuple[dict[str, bytes], dict[str, bytes]],
    reference: dict[str, bytes],
    operations: int,
    way: Way,
) -> None:
    """The attempt stops at each of ten moments, and resuming merges the present files.

    In the last quarter of the operations nothing is read any more.
    """
    data, expected = others
    stopped = []

    def check(merge: Merge, at: int) -> None:
        with_own_models(merge)
        paused = merge.start("run", at)
        for name in MODELS:
            way(merge.models / name / FILE, data[name])
        ended = paused.go_on()
        stopped.append(ended.code == 75)
        if ended.code == 0:  # everything had been read before
            assert weights(merge.files()) == weights(reference)
            return
        assert ended.code == 75, ended.stderr
        assert "changed or disappeared during the merge" in ended.stderr
        assert f"{MODELS[0]}/{FILE}" in ended.stderr
        assert "source_changed" in merge.events()
        if at < operations // 2:  # it does not go on to the end first
            assert merge.query("SELECT 1 FROM units WHERE checksum IS NULL")
        assert merge.query("SELECT state FROM run") == [{"state": "interrupted"}]
        merge.finish()
        merge.assert_done(expected)

    bench.each(
        sorted(random.Random(way.__name__).sample(range(10, operations * 3 // 4), 10)), check
    )
    assert sum(stopped) >= 5


def test_replaced_after_the_last_commit(bench: Bench, calm: tuple[Ended, dict[str, bytes]]) -> None:
    """No file is read any more, but the output is not a merge of the present models."""
    merge = with_own_models(bench.merge())
    sealing = [n for n, kind in enumerate(calm[0].kinds, 1) if kind.startswith("rename model-")]
    paused = merge.start("run", sealing[-1])
    model = merge.models / "math" / FILE
    moved_over(model, retrained(model))
    ended = paused.go_on()
    assert ended.code == 75
    assert f"math/{FILE} changed" in ended.stderr


def test_put_back_after_the_stop_nothing_is_lost(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = with_own_models(bench.merge())
    model = merge.models / "math" / FILE
    before = model.read_bytes()
    paused = merge.start("run", operations // 2)
    moved_over(model, retrained(model))
    assert paused.go_on().code == 75
    committed = merge.query("SELECT number FROM units WHERE checksum IS NOT NULL")
    moved_over(model, before)
    merge.finish()
    merge.assert_done(reference)
    attempts = merge.query("SELECT number FROM units WHERE attempt = 1")
    assert committed
    assert {row["number"] for row in committed} == {row["number"] for row in attempts}


def test_what_was_told_of_one_attempt_excuses_no_change_after_the_next(
    bench: Bench, operations: int
) -> None:
    merge = with_own_models(bench.merge())
    model = merge.models / "math" / FILE
    paused = merge.start("run", operations // 2)
    moved_over(model, retrained(model))
    assert paused.go_on().code == 75
    merge.resume(operations // 3)
    assert merge.query("SELECT 1 FROM units WHERE attempt = 2")
    moved_over(model, retrained(model))
    refused = merge.resume()
    assert refused.code == 2, refused.stderr
    assert f"math/{FILE} has different contents" in refused.stderr


def test_only_what_reads_a_changed_file_is_computed_again(bench: Bench, operations: int) -> None:
    recipe = (
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: math, layer_range: [0, 1]}]\n"
        "  - sources: [{model: code, layer_range: [1, 2]}]\n"
    )
    merge = with_own_models(bench.merge(recipe))
    ended, _ = bench.calm(recipe)
    model = merge.models / "code" / FILE
    paused = merge.start("run", len(ended.kinds) // 2)
    moved_over(model, retrained(model))
    assert paused.go_on().code == 75
    merge.finish()
    again = merge.query("SELECT expression FROM units WHERE attempt = 2")
    kept = merge.query("SELECT expression FROM units WHERE attempt = 1")
    assert any('"source": 1' in row["expression"] for row in again)
    assert kept and not any('"source": 1' in row["expression"] for row in kept)


@pytest.mark.parametrize("way", WAYS)
def test_changed_between_attempts_whatever_its_time_says(
    bench: Bench, operations: int, way: Way
) -> None:
    """The change is refused at ten moments, and nothing is lost when the file is put back."""

    def check(merge: Merge, at: int) -> None:
        with_own_models(merge)
        merge.run(at)
        if not merge.runs() or not merge.query("SELECT 1 FROM units WHERE committed_blocks"):
            return
        model = merge.models / "math" / FILE
        before = model.read_bytes()
        way(model, retrained(model))
        refused = merge.resume()
        assert refused.code == 2, refused.stderr
        assert "A source has changed since the run was created" in refused.stderr
        assert f"math/{FILE} has different contents" in refused.stderr
        way(model, before)
        assert merge.resume().code == 0

    points = random.Random(way.__name__).sample(range(20, operations - 12), 10)
    bench.each(sorted(points), check)


def without_contents(card: bytes) -> bytes:
    """Return a model card without the hashes of what was read of local models."""
    told = rb", checksum of what this recipe reads of it: `[0-9a-f]{32}` \(xxh3-128\)"
    noted = rb"\n +content: '?[0-9a-f]{32}'?"
    return re.sub(noted, b"", re.sub(told, b"", card))


def test_the_first_bytes_of_a_tensor_that_change_are_noticed(bench: Bench, operations: int) -> None:
    """Only the first eight bytes of one tensor change: samples from its middle are the same."""
    merge = with_own_models(bench.merge())
    merge.run(operations // 2)
    model = merge.models / "math" / FILE
    data = bytearray(model.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start : start + 8] = bytes(8)  # of the first tensor alone
    overwritten_with_its_time(model, bytes(data))
    refused = merge.resume()
    assert refused.code == 2
    assert f"math/{FILE} has different contents" in refused.stderr


def test_what_was_not_read_yet_needs_no_proof(bench: Bench, operations: int) -> None:
    """A run that has committed no block accepts other weights."""
    merge = with_own_models(bench.merge())
    for at in range(operations):  # until there is a run without a committed block
        merge.run(at + 1)
        if merge.runs():
            break
        shutil.rmtree(merge.root)
        merge.root.mkdir()
    model = merge.models / "math" / FILE
    moved_over(model, retrained(model))
    assert merge.resume().code == 0
    calm = with_own_models(bench.merge())
    moved_over(calm.models / "math" / FILE, model.read_bytes())
    assert calm.run().code == 0
    assert weights(merge.files()) == weights(calm.files())


def test_touched_models_may_be_trusted(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = with_own_models(bench.merge())
    merge.run(operations // 2)
    for name in MODELS:
        os.utime(merge.models / name / FILE, ns=(0, time.time_ns()))
    ended = merge.resume(trust_sources=True)
    assert ended.code == 0, ended.stderr
    assert "3 model files" in ended.stderr
    assert "--trust-sources" in ended.stderr
    assert "sources_trusted" in merge.events()
    merge.assert_done(reference)


def test_a_run_that_began_with_trust_hashes_nothing_and_stays_so(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    """A later attempt trusts without the option, because there are no hashes to compare."""
    merge = with_own_models(bench.merge())
    merge.run(operations // 2, trust_sources=True)
    for name in MODELS:
        os.utime(merge.models / name / FILE, ns=(0, time.time_ns()))
    ended = merge.resume()
    assert ended.code == 0, ended.stderr
    assert "was not compared (--trust-sources)" in ended.stderr
    merge.assert_done(reference | {"README.md": without_contents(reference["README.md"])})
    assert merge.query("SELECT number FROM units WHERE length(input_hashes) > 0") == []
    assert merge.query("SELECT model FROM sources WHERE content IS NOT NULL") == []


def test_a_run_that_is_trusted_later_hashes_on(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    """Either every unit of a run has its input hashes, or none has."""
    merge = with_own_models(bench.merge())
    merge.run(operations // 3)
    merge.resume(operations // 3, trust_sources=True)
    for name in MODELS:
        os.utime(merge.models / name / FILE)
    assert merge.resume().code == 0
    assert merge.events().count("source_touched") == 1
    merge.assert_done(reference)


def test_a_touched_model_is_read_once_and_not_at_each_attempt(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = with_own_models(bench.merge())
    merge.run(operations // 2)
    os.utime(merge.models / "math" / FILE)
    merge.resume(10)
    merge.finish()
    merge.assert_done(reference)
    assert merge.events().count("source_touched") == 1


def test_the_card_and_the_ledger_name_the_content_of_local_models(bench: Bench) -> None:
    """Fine-tunes of one base have the same header, but their contents have different hashes."""
    cards, contents = [], []
    for other in (False, True):
        merge = with_own_models(bench.merge())
        model = merge.models / "math" / FILE
        if other:
            overwritten_with_its_time(model, retrained(model))
        assert merge.run().code == 0
        cards.append(merge.files()["README.md"].decode())
        rows = merge.query("SELECT model, content FROM sources ORDER BY number")
        contents.append({row["model"]: row["content"] for row in rows})
        for content in contents[-1].values():
            assert content in cards[-1]
    same = {name for name in contents[0] if contents[0][name] == contents[1][name]}
    assert same == {"base", "code"}
