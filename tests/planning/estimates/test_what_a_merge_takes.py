"""Promise: memory, disk, downloads and time of a merge follow from its plan and the machine."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from made_up_plans import llama, plan, tensor, units

from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.host.speed import Speed
from resumerge.planning import Plan, estimate
from resumerge.planning.estimates.estimate import largest_file
from resumerge.planning.estimates.memory import (
    BASE_RSS,
    BUCKETS_RSS,
    FURTHER_CLOUD_RSS,
    KERNELS_RSS,
    NODE_BYTES,
    SAFETY,
    UNIT_BYTES,
    UPLOAD_RSS,
)
from resumerge.planning.estimates.time import REFERENCE_COMPUTE, START_SECONDS, TORCH_SECONDS
from resumerge.recipe import ModelRef
from resumerge.sources.types import Source, SourceFile
from resumerge.tensors import Adapted, Rounded
from resumerge.tensors.target import BLOCK_ELEMENTS

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
ISO_C = "merge_method: iso_c\nbase_model: a\nmodels: [{model: a}, {model: b}]\n"
HEAD = "lm_head.weight"


def large(name: str, rows: int, dtype: str = "F32") -> Source:
    """Return a model that is small except for its head, of that many rows of 1000 elements."""
    return llama(name, others=[tensor(HEAD, (rows, 1000), dtype)])


def linear(rows: int = 2000) -> Plan:
    return plan(LINEAR, large("a", rows), large("b", rows))


# Time


def seconds(found: Plan, threads: int = 1, **speed: float | None) -> tuple[float, str]:
    known: dict[str, float | None] = {"read": None, "write": None, "compute": None, **speed}
    return estimate(found).time.seconds(threads, Speed(**known))


def test_what_takes_longest_decides() -> None:
    found = linear()
    read = sum(estimate(found).read_of(0).values()) + sum(estimate(found).read_of(1).values())
    took, basis = seconds(found, read=read / 100, write=found.output_bytes / 50)
    assert took == pytest.approx(100, abs=2.5) and "reading takes longest" in basis
    took, basis = seconds(found, read=read / 100, write=found.output_bytes / 300)
    assert took == pytest.approx(300, abs=2.5) and "writing takes longest" in basis
    took, basis = seconds(found, read=read / 100, compute=REFERENCE_COMPUTE / 1e6)
    assert took > 1000 and "computing takes longest" in basis


def test_the_factor_of_a_weight_takes_another_pass() -> None:
    models = [llama(n, others=[tensor("model.layers.0.x.weight", (2048, 1024))]) for n in "ab"]
    four, factor, plain = (
        estimate(plan(f"{LINEAR}out_dtype: {scheme}\n", *models)).time.milliseconds
        for scheme in ("mxfp4", "nvfp4", "bfloat16")
    )
    assert factor - four == pytest.approx(plain, rel=0.1)


def test_threads_share_the_computing_alone() -> None:
    found = linear()
    slow = REFERENCE_COMPUTE / 1e6
    one, four = (seconds(found, n, compute=slow)[0] for n in (1, 4))
    start, _ = seconds(plan(COPY, llama("a")), compute=slow)
    assert one - start == pytest.approx(4 * (four - start), rel=0.01)
    read = seconds(found, 1, read=1e5)[0], seconds(found, 4, read=1e5)[0]
    assert read[0] == read[1]


def test_a_slow_machine_takes_longer_to_begin_too() -> None:
    found = plan(COPY, llama("a"))
    assert seconds(found)[0] == pytest.approx(START_SECONDS, abs=0.06)
    assert seconds(found, compute=REFERENCE_COMPUTE / 10)[0] == pytest.approx(10 * START_SECONDS)
    by_torch = plan(ISO_C, llama("a"), llama("b"))
    took, _ = seconds(by_torch, compute=REFERENCE_COMPUTE / 10)
    assert took == pytest.approx(10 * (START_SECONDS + TORCH_SECONDS), abs=0.1)


def test_what_was_measured_is_told() -> None:
    found = linear()
    _, basis = seconds(found, read=2e6, compute=REFERENCE_COMPUTE / 2)
    assert "reading 2 MB/s, writing unknown" in basis
    _, basis = seconds(found)
    assert "a core" not in basis


def test_what_is_copied_is_not_computed() -> None:
    assert estimate(linear()).time.computes
    copied = plan(COPY, llama("a"))
    assert not estimate(copied).time.computes
    slow, fast = (seconds(copied, read=1e3, compute=REFERENCE_COMPUTE * n)[1] for n in (0.01, 1))
    assert "reading takes longest" in slow and "reading takes longest" in fast


# Disk and downloads


def on_the_hub(source: Source, present: set[str]) -> Source:
    """Return the model as on the Hub, in two files and a third without tensors.

    The files `present` are on this disk.
    """
    names = {"m.safetensors": 7_000, "two.safetensors": 50, "unread.safetensors": 900_000}
    files = {n: SourceFile(n, size, {"etag": n}, n in present) for n, size in names.items()}
    tensors = dict(source.tensors)
    tensors[HEAD] = replace(tensors[HEAD], file="two.safetensors")
    return replace(source, kind="hub", files=files, tensors=tensors)


def test_only_files_that_are_read_and_not_here_are_downloaded() -> None:
    both = on_the_hub(llama("a"), set()), on_the_hub(llama("b"), {"two.safetensors"})
    found = estimate(plan(LINEAR, *both))
    assert (found.download, len(found.missing)) == (7_000 + 50 + 7_000, 3)
    assert found.cached == 50


def test_a_tensor_that_is_read_twice_is_downloaded_once() -> None:
    stacked = (
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 2]}]\n"
        "  - sources: [{model: a, layer_range: [1, 3]}]\n"
    )
    model = llama("a")
    whole = sum(tensor.nbytes for tensor in model.tensors.values())
    assert estimate(plan(stacked, model)).read_of(0) == {"m.safetensors": whole}
    part = "merge_method: passthrough\nslices: [{sources: [{model: a, layer_range: [1, 3]}]}]\n"
    first = sum(t.nbytes for name, t in model.tensors.items() if ".layers.0." in name)
    assert estimate(plan(part, model)).read_of(0) == {"m.safetensors": whole - first}


def test_an_adapter_is_downloaded_with_its_model() -> None:
    model = llama("a")
    sizes = {"base/m.safetensors": 9_000, "adapter/x.safetensors": 700}
    files = {name: SourceFile(name, size, {}, present=False) for name, size in sizes.items()}
    tensors = {n: replace(t, file="base/m.safetensors") for n, t in model.tensors.items()}
    a, b, m = (
        tensor(name, shape, "BF16")
        for name, shape in {"a": (2, 4), "b": (10, 2), "m": (10,)}.items()
    )
    parts = [replace(part, file="adapter/x.safetensors") for part in (a, b, m)]
    old = tensors[HEAD]
    changed = Adapted.of(HEAD, old, parts[0], parts[1], 1.0, False, parts[2])
    adapted = replace(model, kind="lora", tensors={**tensors, HEAD: changed}, files=files)
    adapted = replace(adapted, base=replace(model, kind="hub"), adapter=replace(model, kind="hub"))
    found = plan(COPY, adapted)
    assert estimate(found).read_of(0) == {
        "base/m.safetensors": sum(t.nbytes for t in model.tensors.values()),
        "adapter/x.safetensors": 2 * (2 * 4 + 10 * 2 + 10),
    }
    said = estimate(found)
    assert (said.download, len(said.missing), said.cached) == (9_700, 2, 0)
    head = units(found)[HEAD].expression
    assert found.files_of(head, "hub") == {(0, name) for name in files}
    assert found.files_of(head, "local") == frozenset()


def test_reading_is_tried_on_the_largest_file_that_is_here_and_read() -> None:
    a = on_the_hub(llama("a"), {"two.safetensors", "unread.safetensors"})
    b = on_the_hub(llama("b"), {"m.safetensors"})
    found = plan(LINEAR, a, b)
    assert largest_file(found, estimate(found)) == b.folder / "m.safetensors"
    nothing = on_the_hub(llama("b"), set())
    found = plan(LINEAR, nothing, replace(nothing, ref=a.ref))
    assert largest_file(found, estimate(found)) is None


def test_the_disk_holds_the_shards_and_what_stands_beside_them() -> None:
    found = linear()
    said = estimate(found)
    assert said.disk == sum(shard.nbytes for shard in found.shards) + FREE_FOR_COMPANIONS
    assert said.largest.name == HEAD


# Memory


def besides_the_plan(found: Plan, mirror: str | None = None) -> int:
    """Return the bytes that the process takes, without the objects of its plan."""
    computed = sum(not isinstance(node, Rounded) for node in found.nodes())
    objects = UNIT_BYTES * len(found.units) + NODE_BYTES * computed
    return estimate(found, mirror).memory.need(1).process - objects


def test_the_process_with_torch_is_larger() -> None:
    assert besides_the_plan(plan(COPY, llama("a"))) == KERNELS_RSS
    assert besides_the_plan(plan(ISO_C, llama("a"), llama("b"))) == BASE_RSS


def test_the_process_that_asks_buckets_is_larger() -> None:
    found = plan(COPY, llama("a"))

    def in_buckets(*models: str) -> Plan:
        source = replace(found.sources[0], kind="bucket")
        sources = (replace(source, ref=ModelRef(model, model)) for model in models)
        return replace(found, sources=tuple(sources))

    remote = in_buckets("s3://bucket/a", "s3://other/b")
    assert besides_the_plan(remote) == KERNELS_RSS + BUCKETS_RSS
    assert besides_the_plan(found, "/a/folder") == KERNELS_RSS
    assert besides_the_plan(found, "hf://org/name") == KERNELS_RSS
    mirrored = besides_the_plan(found, "s3://bucket/prefix")
    assert mirrored == KERNELS_RSS + BUCKETS_RSS + UPLOAD_RSS
    assert besides_the_plan(remote, "s3://bucket/prefix") == mirrored
    assert besides_the_plan(remote, "gs://bucket/prefix") == mirrored + FURTHER_CLOUD_RSS
    of_two = in_buckets("s3://bucket/a", "az://container/b")
    assert besides_the_plan(of_two) == besides_the_plan(remote) + FURTHER_CLOUD_RSS
    assert besides_the_plan(of_two, "gs://bucket/c") == mirrored + 2 * FURTHER_CLOUD_RSS


def test_the_plan_itself_counts() -> None:
    """A mixture of many experts has tens of thousands of tensors."""
    few, many = (
        plan(COPY, llama("a", others=[tensor(f"experts.{n}.weight", (8, 8)) for n in range(count)]))
        for count in (10, 1010)
    )
    grown = estimate(many).memory.need(1).peak_rss - estimate(few).memory.need(1).peak_rss
    assert grown == 1000 * (UNIT_BYTES + NODE_BYTES)


def test_a_plan_of_many_tensors_takes_less_than_is_counted() -> None:
    """A dict of its own for each tensor of the tree would double the memory of the plan."""

    def traced(count: int) -> int:
        many = [tensor(f"model.blocks.{n}.weight", (8, 8)) for n in range(count)]
        tracemalloc.start()
        found = plan(LINEAR, *(llama(name, others=many) for name in "ab"))
        estimate(found).memory.need(2)
        now, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return now

    assert traced(1100) - traced(100) < 1000 * 2000


def test_what_is_read_and_written_passes_through_the_page_cache() -> None:
    found = linear()
    read = sum(sum(estimate(found).read_of(n).values()) for n in (0, 1))
    assert estimate(found).memory.need(1).traffic == read + found.output_bytes


def test_a_budget_is_a_little_more_than_what_is_predicted() -> None:
    need = estimate(linear()).memory.need(3)
    assert need.enough == int((need.process + need.shared + need.blocks) * SAFETY)
    assert need.least_enough == int((need.process + need.shared + need.least) * SAFETY)
    assert need.least < need.blocks


def test_copied_blocks_are_held_once_as_they_are_stored() -> None:
    for dtype, width in (("F32", 4), ("BF16", 2)):
        found = plan(COPY, large("a", 4000, dtype))
        assert estimate(found).memory.blocks(1) == width * BLOCK_ELEMENTS
        assert estimate(found).memory.blocks(3) == 3 * width * BLOCK_ELEMENTS


def test_a_tensor_smaller_than_a_block_takes_less() -> None:
    small, usual = (plan(LINEAR, large("a", n), large("b", n)) for n in (10, 1000))
    assert 0 < 10 * estimate(small).memory.blocks(1) < estimate(usual).memory.blocks(1)


def test_a_tensor_that_is_held_whole_counts_once_for_each_thread_that_can_have_one() -> None:
    """While one thread has the only large tensor (20 M elements), the others compute small ones."""
    found = plan(ISO_C, large("a", 20_000), large("b", 20_000))
    one, four = estimate(found).memory.blocks(1), estimate(found).memory.blocks(4)
    assert one > 20_000_000 * 4 * 3
    assert one <= four < 1.1 * one
    body = [tensor(f"model.layers.{n}.mlp.up_proj.weight", (20_000, 1000)) for n in range(3)]
    several = plan(ISO_C, *(llama(name, others=body) for name in "ab"))
    assert estimate(several).memory.blocks(2) > 1.9 * estimate(several).memory.blocks(1)
    assert estimate(several).memory.blocks(8) < 3.3 * estimate(several).memory.blocks(1)


def test_the_largest_tensor_that_is_held_whole_is_told() -> None:
    found = plan(ISO_C, large("a", 2000), large("b", 2000))
    [note] = estimate(found).notes
    assert f"iso_c computes on whole tensors: {HEAD} alone takes" in note
    assert estimate(linear()).notes == ()
