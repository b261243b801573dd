"""Promise: both matrices of an adapter have the product that they stand for: the difference of two
tensors, or what a merge method makes of several changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from every_kind import NotedFiles, leaf, told
from reading import read

from resumerge.engine.evaluation.kernel_backend import KernelBackend
from resumerge.errors import Reason, Resumable
from resumerge.kernels.linalg.core_space import working_bytes as core_space_bytes
from resumerge.kernels.linalg.low_rank import decompose
from resumerge.kernels.linalg.low_rank import working_bytes as bytes_to_decompose
from resumerge.methods import METHODS
from resumerge.tensors import AdapterPair, BothMatrices, Combined, Factors, Merged, Rounded, Stored
from resumerge.tensors.adapters import combined as combined_module
from resumerge.tensors.adapters import factors as factors_module
from resumerge.tensors.adapters.combined import rank_of_sum
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.evaluation import Evaluation, HeldValues
from resumerge.tensors.generated import Filled

OUT, IN = 6, 4
VALUES = np.array([8.0, 4.0, 2.0, 1.0])


def orthonormal(seed: int, rows: int, columns: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((rows, columns))
    return np.linalg.qr(drawn)[0]


def difference(seed: int = 0, values: np.ndarray = VALUES) -> tuple[np.ndarray, np.ndarray]:
    """Return the (left, right) singular vectors of a matrix with these values."""
    count = len(values)
    return orthonormal(seed, OUT, count), orthonormal(seed + 1, IN, count).T


def means(arrays: Mapping[str, np.ndarray], found: list[np.ndarray] | None = None) -> Any:
    call: Any = KernelBackend
    files, held = NotedFiles(arrays), HeldValues(0)
    return Evaluation(files, Buffers(), held, call, {}, measurements=found)


def factors(matrices: list[np.ndarray], **given: Any) -> tuple[Factors, dict[str, np.ndarray]]:
    """Return the factors of how matrices differ from their bases, and the numbers of all leaves."""
    arrays, pairs = {}, []
    for number, matrix in enumerate(matrices):
        base = np.arange(matrix.size, dtype=np.float32).reshape(matrix.shape) / 8
        arrays |= {f"w{number}": (base + matrix).astype(np.float32), f"v{number}": base}
        pairs.append((leaf(f"w{number}", arrays[f"w{number}"]), leaf(f"v{number}", base)))
    rank = given.get("rank", 4)
    fixed: dict[str, Any] = {"transposed": False, "searched": 4, "distributed": False}
    fixed |= {"epsilon": 0.0, "energy": None, "key": "k", "models": ("base", "tuned")}
    numel = len(matrices) * rank * sum(matrices[0].shape)
    tensor = Factors(
        name="f",
        dtype="F32",
        shape=(numel,),
        pairs=tuple(pairs),
        matrix=matrices[0].shape,
        **{"rank": rank, **fixed, **given},
    )
    return tensor, arrays


def both(tensor: BothMatrices, experts: int, rank: int, data: bytes) -> list[tuple[Any, Any]]:
    """Return (A, B) of each expert, as peft reads them."""
    flat = np.frombuffer(data, np.float32)
    split = experts * rank * IN
    a = flat[:split].reshape(experts, rank, IN)
    b = flat[split:].reshape(OUT, rank, experts)
    return [(a[number], b[:, :, number]) for number in range(experts)]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("at_once", [1, 1 << 20])
@pytest.mark.parametrize("held", [0, 1 << 24])
def test_of_a_difference_the_product_is_nearest(
    transposed: bool, distributed: bool, at_once: int, held: int
) -> None:
    """A has the singular values, or both matrices have their roots, however few rows are read."""
    left, right = difference()
    change = left * VALUES @ right
    tensor, arrays = factors(
        [change.T.copy() if transposed else change],
        transposed=transposed,
        distributed=distributed,
        rank=2,
    )
    found: list[np.ndarray] = []
    with patch.multiple(factors_module, AT_ONCE=at_once, HELD=held):
        data = read(means(arrays, found), tensor)
    [(a, b)] = both(tensor, 1, 2, data)
    np.testing.assert_allclose(b @ a, left[:, :2] * VALUES[:2] @ right[:2], atol=1e-4)
    of_a = np.sqrt(VALUES[:2]) if distributed else VALUES[:2]
    of_b = np.sqrt(VALUES[:2]) if distributed else np.ones(2)
    np.testing.assert_allclose(np.linalg.norm(a, axis=1), of_a, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(b, axis=0), of_b, rtol=1e-5)
    assert (tensor.outputs, tensor.inputs) == (OUT, IN)
    [[measured]] = found
    np.testing.assert_allclose(measured[1:3], [85, 80], rtol=1e-5)


def test_each_expert_has_matrices_of_its_own() -> None:
    changes = []
    for seed in range(3):
        left, right = difference(3 * seed)
        changes.append((seed + 1) * left * VALUES @ right)
    tensor, arrays = factors(changes, rank=4)
    found: list[np.ndarray] = []
    parts = both(tensor, 3, 4, read(means(arrays, found), tensor))
    assert tensor.with_rank(2).shape == (3 * 2 * (OUT + IN),)
    for (a, b), change in zip(parts, changes, strict=True):
        np.testing.assert_allclose(b @ a, change, atol=1e-4)
    np.testing.assert_allclose(found[0][0][1:3], 2 * [85 * (1 + 4 + 9)], rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, 4),
        ({"rank": 6, "searched": 6}, 4),
        ({"rank": 6, "searched": 3}, 3),
        ({"rank": 3}, 3),
        ({"epsilon": 3.0}, 2),
        ({"epsilon": 9.0}, 0),
        ({"energy": 0.75}, 1),
        ({"energy": 0.76}, 2),
        ({"energy": 0.95}, 3),
        ({"energy": 1.0}, 4),
        ({"energy": 1.1}, 4),
        ({"energy": 0.95, "rank": 2}, 2),
        ({"energy": 0.95, "epsilon": 3.0}, 2),
    ],
)
def test_what_is_kept_are_the_first_directions(given: dict[str, Any], kept: int) -> None:
    """The rank, epsilon and the share of energy limit the directions that are kept.

    The first one, two and three have 64, 80 and 84 of the energy 85. The matrices are zeros in the
    directions that are not kept.
    """
    left, right = difference()
    tensor, arrays = factors([left * VALUES @ right], **given)
    rank = given.get("rank", 4)
    found: list[np.ndarray] = []
    [(a, b)] = both(tensor, 1, rank, read(means(arrays, found), tensor))
    expected = left[:, :kept] * VALUES[:kept] @ right[:kept]
    np.testing.assert_allclose(b @ a, expected, atol=1e-4)
    used = [bool(a[number].any() or b[:, number].any()) for number in range(rank)]
    assert used[:kept] == [True] * kept and not any(used[kept:])
    np.testing.assert_allclose(found[0][0][2], np.square(VALUES[:kept]).sum(), rtol=1e-5)


def test_a_value_as_large_as_the_least_is_not_kept() -> None:
    """A value of zero, whose direction is arbitrary, is not kept either."""
    change = np.diag([2.0, 1.0, 0.0, 0.0])
    tensor, arrays = factors([np.vstack([change, 0 * change[:2]])], epsilon=1.0)
    [(a, b)] = both(tensor, 1, 4, read(means(arrays), tensor))
    assert np.count_nonzero(a) == np.count_nonzero(b) == 1
    tensor = replace(tensor, epsilon=0.0)
    [(a, b)] = both(tensor, 1, 4, read(means(arrays), tensor))
    assert np.count_nonzero(np.abs(a @ a.T) > 1e-6) == 2
    assert not b[:, 2:].any(), "B has no direction that A does not use"
    stored, arrays = factors([np.vstack([change, 0 * change[:2]])], transposed=True)
    flat = np.frombuffer(read(means(arrays), stored), np.float32)
    assert not flat[4 * OUT :].reshape(IN, 4)[:, 2:].any()


@pytest.mark.parametrize(
    ("energy", "searched", "kept"), [(0.75, 4, 1), (0.76, 4, 2), (0.85, 2, 2), (0.8, 2, 2)]
)
def test_the_share_is_of_the_whole_change(energy: float, searched: int, kept: int) -> None:
    """The whole change includes the directions that were not searched.

    Of 48, 36 are three quarters, and 40 are less than 0.85.
    """
    change = np.vstack([np.diag([6.0, 2.0, 2.0, 2.0]), np.zeros((2, 4))])
    tensor, arrays = factors([change], energy=energy, searched=searched)
    [(a, _)] = both(tensor, 1, 4, read(means(arrays), tensor))
    assert int((np.abs(a).max(1) > 0).sum()) == kept


def test_directions_begin_with_a_key_of_the_module_and_of_the_expert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A difference that is small enough is computed once, others in each pass."""
    found = list[tuple[str, bool]]()

    def noted(matrix: Any, shape: tuple[int, int], rank: int, key: str) -> Any:
        assert shape == (OUT, IN) and rank == min(rank, *shape)
        found.append((key, matrix() is matrix()))
        return decompose(matrix, shape, rank, key)

    monkeypatch.setattr(factors_module, "decompose", noted)
    monkeypatch.setattr(combined_module, "decompose", noted)
    tensor, arrays = factors([np.ones((OUT, IN)), np.ones((OUT, IN))])
    for held in (OUT * IN, OUT * IN - 1):
        monkeypatch.setattr(factors_module, "HELD", held)
        read(means(arrays), tensor)
    assert found == [("k/0", True), ("k/1", True), ("k/0", False), ("k/1", False)]
    found.clear()
    pairs = [pair_of(0, 5, 2, experts=2), pair_of(1, 7, 2, experts=2)]
    combination, arrays = combined(pairs, [1.0, 1.0], factors=False, rank=2, experts=2)
    read(means(arrays), combination)
    assert [key for key, _ in found] == ["m/0", "m/1"]


def test_a_direction_has_the_same_bits_at_any_rank() -> None:
    left, right = difference()
    tensor, arrays = factors([left * VALUES @ right])
    [(a, b)] = both(tensor, 1, 4, read(means(arrays), tensor))
    smaller = tensor.with_rank(2)
    assert smaller.numel == 2 * (OUT + IN)
    [(some_a, some_b)] = both(smaller, 1, 2, read(means(arrays), smaller))
    assert some_a.tobytes() == a[:2].tobytes()
    assert some_b.tobytes() == np.ascontiguousarray(b[:, :2]).tobytes()


def pair_of(place: int, seed: int, rank: int, experts: int = 1, scale: float = 1.0) -> Any:
    """Return an adapter's matrices, their numbers, and the change of each expert."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((experts * rank, IN)).astype(np.float32)
    b = random.standard_normal((OUT, experts * rank)).astype(np.float32)
    arrays = {f"a{seed}": a, f"b{seed}": b}
    leaves = [leaf(name, array) for name, array in arrays.items()]
    of_b = b.reshape(OUT, rank, experts)
    changes = [
        scale * of_b[:, :, n].astype(float) @ a.reshape(experts, rank, IN)[n].astype(float)
        for n in range(experts)
    ]
    return AdapterPair(place, leaves[0], leaves[1], scale, rank), arrays, changes


def combined(
    pairs: list[Any], weights: list[float], *, factors: bool, rank: int, experts: int = 1
) -> tuple[Combined, dict[str, np.ndarray]]:
    """Return a weighted sum of one change for each weight, and the numbers of all leaves.

    Changes without a pair are zero.
    """
    ranks = sum(pair.rank for pair, *_ in pairs)
    shape = (ranks, ranks) if ranks < min(OUT, IN) else (OUT, IN)
    core = Merged(
        name="m",
        dtype="F32",
        shape=shape,
        method="linear",
        operands=tuple(Filled(f"{k}", "F32", shape, 0.0) for k in range(len(weights))),
        params={"normalize": False},
        per_operand=tuple({"weight": weight} for weight in weights),
        base=None,
        seed=0,
        block_elements=5,
    )
    arrays = {name: array for _, own, _ in pairs for name, array in own.items()}
    tensor = Combined(
        name="m",
        dtype="F32",
        shape=(experts * rank * (OUT + IN),),
        pairs=tuple(pair for pair, *_ in pairs),
        core=core,
        factors=tuple(weights) if factors else (),
        experts=experts,
        matrix=(OUT, IN),
        rank=rank,
    )
    return tensor, arrays


@pytest.mark.parametrize(
    ("factors", "ranks", "rank"),
    [(True, (2, 1), 3), (False, (2, 1), 3), (False, (2, 3), 4), (True, (2, 3), 5)],
)
@pytest.mark.parametrize("experts", [1, 3])
def test_of_several_changes_the_product_is_what_the_method_makes_of_them(
    factors: bool, ranks: tuple[int, int], rank: int, experts: int
) -> None:
    """One of three adapters does not change the module; a rank of all changes loses nothing."""
    pairs = [pair_of(0, 5, ranks[0], experts, 0.5), pair_of(2, 7, ranks[1], experts, 2.0)]
    tensor, arrays = combined(pairs, [0.25, 9.0, -3.0], factors=factors, rank=rank, experts=experts)
    found: list[np.ndarray] = []
    parts = both(tensor, experts, rank, read(means(arrays, found), tensor))
    changes = [0.25 * one - 3.0 * two for one, two in zip(pairs[0][2], pairs[1][2])]
    for (a, b), change in zip(parts, changes, strict=True):
        np.testing.assert_allclose(b @ a, change, atol=1e-4)
    energy = sum(np.square(change).sum() for change in changes)
    np.testing.assert_allclose(found[0][0][1:3], [energy, energy], rtol=1e-5)
    assert tensor.compared_models == ("no change", "the combined change (linear)")


def test_with_less_rank_the_leading_directions_are_kept_and_the_rest_told() -> None:
    """A and B have the roots of the values, and zeros beyond the rank of the change."""
    pairs = [pair_of(0, 5, 2), pair_of(1, 7, 2)]
    change = pairs[0][2][0] + pairs[1][2][0]
    left, values, right = np.linalg.svd(change, full_matrices=False)
    for rank in (1, 3, 6):
        tensor, arrays = combined(pairs, [1.0, 1.0], factors=False, rank=rank)
        found: list[np.ndarray] = []
        [(a, b)] = both(tensor, 1, rank, read(means(arrays, found), tensor))
        kept = min(rank, 4)
        np.testing.assert_allclose(b @ a, left[:, :kept] * values[:kept] @ right[:kept], atol=1e-4)
        np.testing.assert_allclose(
            np.linalg.norm(a, axis=1)[:kept], np.sqrt(values[:kept]), rtol=1e-4
        )
        assert not a[kept:].any() and not b[:, kept:].any()
        energies = [np.square(values).sum(), np.square(values[:kept]).sum()]
        np.testing.assert_allclose(found[0][0][1:3], energies, rtol=1e-4)


def test_random_masks_of_experts_differ() -> None:
    """Equal changes of two experts get different masks: the expert is a part of their key."""
    pair, arrays, _ = pair_of(0, 5, 2, experts=2)
    arrays["a5"][2:], arrays["b5"][:, 1::2] = arrays["a5"][:2], arrays["b5"][:, ::2]
    tensor, _ = combined([(pair, arrays, None)], [1.0], factors=False, rank=2, experts=2)
    base = Filled("base", "F32", tensor.core.shape, 0.0)
    core = replace(
        tensor.core,
        method="dare_linear",
        operands=(*tensor.core.operands, base),
        params={"normalize": False, "lambda": 1.0, "rescale": True},
        per_operand=({"weight": 1.0, "density": 0.5}, {}),
        base=1,
    )
    (a, b), (other_a, other_b) = both(tensor, 2, 2, read(means(arrays), replace(tensor, core=core)))
    assert not np.allclose(b @ a, other_b @ other_a)


@pytest.mark.parametrize(("experts", "names"), [(1, ["m"]), (2, ["m[0]", "m[1]"])])
def test_of_several_experts_each_is_named(experts: int, names: list[str]) -> None:
    tensor, arrays = combined(
        [pair_of(0, 5, 2, experts)], [1.0], factors=False, rank=2, experts=experts
    )
    with_, called = means(arrays), list[str]()

    def call(merged: Merged) -> Any:
        called.append(merged.name)
        return KernelBackend(merged)

    with_ = replace(with_, backend_of=call)
    read(with_, tensor)
    assert called == names


def test_a_method_with_reductions_is_that_of_the_whole_changes() -> None:
    """The cores are the changes themselves if the ranks fill a side of the matrix."""
    pairs = [pair_of(0, 5, 2), pair_of(1, 7, 2)]
    tensor, arrays = combined(pairs, [1.0, 1.0], factors=False, rank=4)
    method = METHODS["ties"]
    core = replace(
        tensor.core,
        method="ties",
        operands=(*tensor.core.operands, Filled("base", "F32", (OUT, IN), 0.0)),
        params={p.name: p.default for p in method.parameters if not p.per_model},
        per_operand=({"weight": 1.0, "density": 0.5}, {"weight": 0.7, "density": 0.4}, {}),
        base=2,
    )
    [(a, b)] = both(tensor, 1, 4, read(means(arrays), replace(tensor, core=core)))
    changes = {f"d{k}": pair[2][0].astype(np.float32) for k, pair in enumerate(pairs)}
    changes["base"] = np.zeros((OUT, IN), np.float32)
    whole = replace(core, operands=tuple(leaf(name, array) for name, array in changes.items()))
    with_ = means(changes)

    def scan(function: Any, sample: bool = False) -> Any:
        run = whole.block_run(range(whole.blocks), sample=sample)
        yield from KernelBackend(whole).map(function, whole.inputs(with_, run), run)

    with_ = replace(with_, preparation={whole: method.statistics(whole.context, scan)})
    expected = np.frombuffer(read(with_, whole), np.float32).reshape(OUT, IN)
    assert not np.allclose(expected, changes["d0"] + 0.7 * changes["d1"])
    np.testing.assert_allclose(b @ a, expected, atol=1e-4)


def both_kinds() -> list[Any]:
    left, right = difference()
    pairs = [pair_of(0, 5, 1), pair_of(1, 7, 2)]
    return [
        factors([left * VALUES @ right], rank=2),
        combined(pairs, [1.0, 2.0], factors=True, rank=3),
        combined(pairs, [1.0, 2.0], factors=False, rank=2),
    ]


KINDS = pytest.mark.parametrize("number", range(3), ids=["factors", "sum", "compressed"])


@KINDS
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_any_range_is_that_part_and_costs_both(number: int, dtype: str) -> None:
    tensor, arrays = both_kinds()[number]
    tensor = replace(tensor, dtype=dtype)
    whole, width = read(means(arrays), tensor), 4 if dtype == "F32" else 2
    everything = {(name, k) for name, array in arrays.items() for k in range(array.size)}
    for start, stop in ((0, 1), (3, 7), (tensor.numel - 2, tensor.numel)):
        with_ = means(arrays)
        found = read(with_, tensor, start, stop)
        assert found == whole[start * width : stop * width]
        assert with_.files.read == everything == told(tensor.reads(start, stop))
        passed = told(tensor.no_longer_read(start, stop))
        assert passed == (everything if stop == tensor.numel else set())


@KINDS
def test_the_same_is_computed_of_other_tensors(number: int) -> None:
    tensor, arrays = both_kinds()[number]
    children = tensor.children()
    assert [child.name for child in children] == list(arrays)
    others = tuple(replace(child, name=f"{child.name}_") for child in children)
    other = tensor.with_children(others)
    assert other.children() == others
    renamed = {f"{name}_": array for name, array in arrays.items()}
    assert read(means(renamed), other) == read(means(arrays), tensor)


@KINDS
def test_numbers_that_are_not_finite_are_refused_by_name(number: int) -> None:
    tensor, arrays = both_kinds()[number]
    name = next(iter(arrays))
    arrays[name] = arrays[name] * np.float32(np.nan)
    with pytest.raises(Resumable, match=r"finite") as refused:
        read(means(arrays), tensor)
    assert refused.value.reason is Reason.METHOD
    assert tensor.name in str(refused.value)
    if isinstance(tensor, Factors):
        assert "of tuned differs from that of base" in str(refused.value)


def test_the_ledger_describes_what_decides_the_matrices() -> None:
    (found, _), (weighted, _), (compressed, _) = both_kinds()

    def of(name: str) -> dict[str, Any]:
        return {"source": 0, "tensor": name}

    assert found.as_json() == {
        "factors": [[of("w0"), of("v0")]],
        "rank": 2,
        "transposed": False,
        "distributed": False,
        "epsilon": 0.0,
    }
    assert replace(found, energy=0.5).as_json() == found.as_json() | {"energy": 0.5}
    by = {
        "method": "linear",
        "params": {"normalize": False},
        "per_operand": [{"weight": 1.0}, {"weight": 2.0}],
    }
    pairs = [{"a": of(f"a{k}"), "b": of(f"b{k}"), "scale": 1.0} for k in (5, 7)]
    assert compressed.as_json() == {"combined": pairs, "by": by, "rank": 2}
    assert weighted.as_json() == {
        "combined": pairs,
        "by": by,
        "factors": [1.0, 2.0],
        "rank": 3,
    }


def test_the_rank_of_a_sum_is_at_most_the_shorter_side() -> None:
    assert [rank_of_sum(ranks, (6, 4)) for ranks in ([1, 2], [2, 2], [9])] == [3, 4, 4]


def test_what_the_matrices_take_is_estimated_from_their_sizes() -> None:
    """Times are for 2^20 elements, memory is in bytes; kernels state both for large matrices."""

    def stored(name: str, *shape: int) -> Stored:
        return Stored(name, "F32", shape, "f", 0)

    side, long, rank = 400, 1000, 8
    small, large = (
        (stored("w", 100, long), stored("v", 100, long)),
        (
            stored("w", side, long),
            stored("v", side, long),
        ),
    )
    made: list[Factors] = []
    for pair in (small, large):
        made.append(
            Factors(
                name="f",
                dtype="F32",
                shape=(rank * sum(pair[0].shape),),
                pairs=(pair,),
                matrix=pair[0].shape,  # type: ignore[arg-type]
                transposed=False,
                rank=rank,
                searched=16,
                distributed=False,
                epsilon=0.0,
                energy=None,
                key="k",
                models=("a", "b"),
            )
        )
    per = [tensor.own_milliseconds * tensor.numel for tensor in made]
    assert per == pytest.approx([0.12 * 100 * 100 * long, 0.4 * 16 * side * long])
    dense = 4 * 5 * (side + long) * (16 + 24)
    read_at_once = 3 * 4 * (1 << 20)
    expected = 4 * side * long + read_at_once + dense + 3 * 4 * made[1].numel
    assert made[1].working_bytes(1) == expected
    [(own, other)] = made[1].pairs
    rounded = replace(made[1], pairs=((Rounded.of(own, "BF16"), other),))
    assert rounded.working_bytes(1) == expected + 4 * (1 << 20)
    tensor, arrays = both_kinds()[1]
    given = sum(array.size for array in arrays.values())
    assert tensor.working_bytes(1) == 4 * given + 16 * given + 12 * tensor.numel
    assert tensor.own_milliseconds * tensor.numel == pytest.approx(6.0 * 3 * given)


def test_what_is_compressed_takes_its_cores_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores of all operands and of the result count; the kernels state bases and directions."""
    tensor, arrays = both_kinds()[2]
    given, ranks, rank = sum(array.size for array in arrays.values()), 3, 2
    core = tensor.core
    assert tensor.working_bytes(1) == (
        4 * given
        + 8 * given
        + 12 * tensor.numel
        + core_space_bytes((OUT, IN), ranks)
        + bytes_to_decompose(*core.shape, rank)
        + 8 * rank * (OUT + IN)
        + 4 * 3 * core.numel
        + core.computing_bytes(core.numel)
    )
    with_base = replace(
        core,
        method="ties",
        operands=(*core.operands, core.operands[0]),
        params={p.name: p.default for p in METHODS["ties"].parameters if not p.per_model},
        per_operand=({"weight": 1.0, "density": 0.5}, {"weight": 1.0, "density": 0.5}, {}),
        base=2,
    )
    of_ties = replace(tensor, core=with_base)
    statistics = METHODS["ties"].statistics_bytes(with_base.context)
    more = with_base.computing_bytes(core.numel) - core.computing_bytes(core.numel)
    assert statistics > 0
    assert of_ties.working_bytes(1) - tensor.working_bytes(1) == pytest.approx(
        4 * core.numel + more + statistics
    )
    assert not tensor.uses_torch
    monkeypatch.setattr(Merged, "uses_torch", True)
    assert tensor.uses_torch
