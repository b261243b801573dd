"""Promise: what a merge holds in memory is the sum of its parts, none of which is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_up_plans import llama, plan, tensor, units

from resumerge.kernels.measurements import measured_bytes
from resumerge.methods import METHODS
from resumerge.planning import Plan, estimate
from resumerge.planning.estimates.memory import TOKEN_BYTES
from resumerge.planning.plan import Unit
from resumerge.planning.planner import make_plan
from resumerge.recipe import parse_recipe
from resumerge.sources.types import Source, numbered
from resumerge.tensors import Adapted, Gathered, Merged
from resumerge.tensors.adapters.adapted import ADAPTER_SCRATCH, MATMUL_BYTES
from resumerge.tensors.buffers import REUSED
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
HEAD = "lm_head.weight"
ROWS, COLUMNS = 500, 1000


def adapted(
    name: str,
    rank: int,
    *,
    dtypes: tuple[str, str] = ("F32", "F32"),
    transposed: bool = False,
    magnitude: bool = False,
) -> Source:
    """Return a model whose head is changed by an adapter."""
    stored = tensor(HEAD, (ROWS, COLUMNS))
    a, b = (
        tensor(x, shape, dtype)
        for x, shape, dtype in zip("ab", ((rank, COLUMNS), (ROWS, rank)), dtypes)
    )
    factors = tensor("m", (ROWS,)) if magnitude else None
    changed = Adapted.of(HEAD, stored, a, b, 1.0, transposed, factors)
    found = llama(name)
    return replace(found, kind="lora", tensors={**found.tensors, HEAD: changed})


def plain(name: str) -> Source:
    return llama(name, others=[tensor(HEAD, (ROWS, COLUMNS))])


def merged(unit: Unit) -> Merged:
    assert isinstance(unit.expression, Merged)
    return unit.expression


# Adapters


def test_the_matrices_of_two_tensors_of_each_adapter_are_held() -> None:
    before = estimate(plan(LINEAR, plain("a"), plain("b"))).memory.need(1).shared
    one = estimate(plan(LINEAR, adapted("a", 8), plain("b"))).memory.need(1).shared
    both = estimate(plan(LINEAR, adapted("a", 8), adapted("b", 16))).memory.need(1).shared
    assert one - before == MATMUL_BYTES + 2 * 8 * (4 * ROWS + 8 * COLUMNS)
    assert both - one == 2 * 16 * (4 * ROWS + 8 * COLUMNS)


@pytest.mark.parametrize(
    ("dtypes", "transposed", "left"),
    [
        (("BF16", "BF16"), False, 4),
        (("F32", "F64"), False, 8),
        (("F64", "F32"), False, 4),
        (("F64", "F32"), True, 8),
        (("F32", "F64"), True, 8),
    ],
)
def test_matrices_are_held_as_stored_or_widened(
    dtypes: tuple[str, str], transposed: bool, left: int
) -> None:
    for magnitude in (False, True):
        model = adapted("a", 8, dtypes=dtypes, transposed=transposed, magnitude=magnitude)
        changed = model.tensors[HEAD]
        assert isinstance(changed, Adapted)
        factors = 8 * max(ROWS, COLUMNS) if magnitude else 0
        assert changed.held_bytes == 8 * (left * ROWS + 8 * COLUMNS) + factors


def test_a_block_that_an_adapter_changes_takes_a_chunk_more() -> None:
    before, after = (
        estimate(plan(COPY + "dtype: bfloat16\n", m)).memory.blocks(1)
        for m in (plain("a"), adapted("a", 8))
    )
    assert after - before == ADAPTER_SCRATCH


def test_a_tensor_that_is_copied_is_a_block_at_a_time() -> None:
    assert estimate(plan(COPY, plain("a"))).memory.blocks(1) == 4 * BLOCK_ELEMENTS


# Vocabularies


def united(sizes: Mapping[str, int]) -> Plan:
    """Return the plan of a union of models, each of which has the tokens in another order."""
    sources, vocabularies = {}, {}
    for shift, (name, size) in enumerate(sizes.items()):
        tables = [tensor(table, (size, 4)) for table in ("model.embed_tokens.weight", HEAD)]
        model = llama(name, others=tables, config={"vocab_size": size})
        ids = {f"token {(number + shift) % size}": number for number in range(size)}
        sources[model.ref] = model
        vocabularies[model.ref] = Vocabulary(model, "Unigram", ids, {}, (), name)
    recipe = parse_recipe(LINEAR + "tokenizer_source: union\n")
    known = Tokenizers(vocabularies)
    return make_plan(recipe, numbered(sources), known, seed=0, shard_size=1 << 30)


def test_tokenizers_and_each_map_of_rows_are_held() -> None:
    found = united({"a": 40, "b": 30})
    tables = [units(found)[name].expression for name in (HEAD, "model.embed_tokens.weight")]
    [heads], [embeddings] = (
        [node.rows for node in table.nodes() if isinstance(node, Gathered)] for table in tables
    )
    assert heads is embeddings, "of the second model; the first's rows stay as they are"
    expected = heads.nbytes + TOKEN_BYTES * 2 * 40
    assert estimate(found).memory.vocabulary == expected
    without = estimate(replace(found, vocabulary=None)).memory.need(1)
    assert estimate(found).memory.need(1).shared - without.shared == expected


# Reductions


def of_sizes(*blocks: int) -> Plan:
    """Return the plan of a TIES merge of tensors with these numbers of blocks."""
    tables = [tensor(f"x.{n}", (count * BLOCK_ELEMENTS,)) for n, count in enumerate(blocks)]
    recipe = (
        "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n"
        "models: [{model: b}]\n"
    )
    nothing = list(llama("a", 0).tensors)
    return plan(recipe, *(llama(m, 0, others=tables, without=nothing) for m in "ab"))


def test_of_two_tensors_in_a_row_the_reductions_are_held() -> None:
    found = of_sizes(2, 5, 4, 1, 6)
    each = [
        METHODS["ties"].statistics_bytes(merged(unit).context) if unit.blocks > 1 else 0
        for unit in found.units
    ]
    assert each[3] == 0 < each[0] < each[2] < each[1] < each[4]
    assert estimate(found).memory.need(1).shared == each[1] + each[2]
    last = of_sizes(1, 2, 6)
    assert estimate(last).memory.need(1).shared == sum(
        METHODS["ties"].statistics_bytes(merged(unit).context) for unit in last.units[1:]
    )
    assert estimate(of_sizes(1, 1)).memory.need(1).shared == 0
    assert estimate(of_sizes(2)).memory.need(1).shared > 0


# Blocks


def headed(name: str, dtype: str) -> Source:
    return llama(name, dtype=dtype, others=[tensor(HEAD, (ROWS, COLUMNS), dtype)])


@pytest.mark.parametrize(
    ("dtypes", "said", "expected"),
    [
        (("F32", "BF16"), "", 4 + 2 + 4),
        (("BF16", "BF16"), "", 2 + 2 + 2),
        (("BF16", "BF16"), "out_dtype: float32\n", 2 + 2 + 4),
        (("F64", "F8_E4M3"), "out_dtype: float16\n", 8 + 1 + 2),
        (("F32", "BF16"), "dtype: float32\n", 4 + 2 + 4),
        (("F32", "BF16"), "dtype: bfloat16\nout_dtype: float32\n", 4 + 2 + 2 + 4),
        (("F32", "BF16"), "dtype: bfloat16\n", 4 + 2 + 2 + 2),
        (("F32", "BF16"), "dtype: float16\n", max(4, 2) + 2 + 2 + 2),
    ],
)
def test_kernels_read_operands_as_they_are_but_for_those_to_be_rounded(
    dtypes: tuple[str, str], said: str, expected: int
) -> None:
    found = plan(LINEAR + said, headed("a", dtypes[0]), headed("b", dtypes[1]))
    cost = METHODS["linear"].cost
    scratch = 4 * (cost.scratch + cost.per_input * 2)
    assert estimate(found).memory.blocks(1) == int(
        ROWS * COLUMNS * (expected + scratch) + measured(found)
    )


def measured(found: Plan) -> int:
    """Return the bytes of the head's results that are kept unrounded for its measurements."""
    return measured_bytes(ROWS * COLUMNS, units(found)[HEAD].block_elements)


@pytest.mark.parametrize("dtypes", [("F32", "F32"), ("BF16", "F32"), ("BF16", "BF16")])
def test_torch_computes_block_by_block_in_float32(dtypes: tuple[str, str]) -> None:
    recipe = "merge_method: arcee_fusion\nbase_model: a\nmodels: [{model: b}]\n"
    found = plan(recipe, headed("a", dtypes[0]), headed("b", dtypes[1]))
    unit = units(found)[HEAD]
    assert unit.blocks == 2, "which are read at once"
    out = {"F32": 4, "BF16": 2}[unit.dtype]
    stored = sum({"F32": 4, "BF16": 2}[dtype] for dtype in dtypes) + out
    wide = 4 * (2 + METHODS["arcee_fusion"].cost.scratch)
    block = BLOCK_ELEMENTS // COLUMNS * COLUMNS
    assert estimate(found).memory.blocks(1) == int(
        ROWS * COLUMNS * stored + block * wide + measured(found)
    )


@pytest.mark.parametrize(
    ("method", "models"),
    [
        ("{merge_method: linear, parameters: {weight: 1}", "a, b, c"),
        ("{merge_method: sce, base_model: a", "b, c"),
        ("{merge_method: multislerp, parameters: {weight: 1}", "a, b"),
    ],
)
def test_what_a_method_takes_besides_counts(method: str, models: str) -> None:
    inputs = ", ".join(f"{{model: {name}}}" for name in models.split(", "))
    recipe = f"{method}, models: [{inputs}]}}"
    found = plan(recipe, *(headed(name, "F32") for name in "abc" if name in recipe))
    tensor = merged(units(found)[HEAD])
    count, cost = len(tensor.operands), tensor.merge_method.cost
    expected = 4 * (count + 1 + cost.scratch + cost.per_input * count)
    assert estimate(found).memory.blocks(1) == int(ROWS * COLUMNS * expected + measured(found))


def test_a_run_takes_so_much_of_an_operand_at_most() -> None:
    def of(blocks: int, dtype: str) -> int:
        models = [
            llama(m, 0, others=[tensor(HEAD, (blocks * BLOCK_ELEMENTS,), dtype)]) for m in "ab"
        ]
        return estimate(plan(LINEAR, *models)).memory.blocks(1)

    for dtype, width in (("F32", 4), ("BF16", 2)):
        most = BLOCK_RUN_BYTES // (width * BLOCK_ELEMENTS)
        assert of(3, dtype) == pytest.approx(3 * of(1, dtype), abs=3)
        assert of(most - 1, dtype) < of(most, dtype) == of(most + 1, dtype) == of(100, dtype)


def test_the_largest_block_that_stays_with_a_thread_and_one_that_is_given_back() -> None:
    recipe = "merge_method: iso_c\nbase_model: a\nmodels: [{model: a}, {model: b}]\n"
    least = REUSED // 4
    for numel, passes in ((least, False), (least + 1000, True)):
        shape = (numel // 1000, 1000) if passes else (numel // 1024, 1024)
        models = [llama(m, 0, others=[tensor(HEAD, shape)]) for m in "ab"]
        found = plan(recipe, *models)
        one, two = (estimate(found).memory.blocks(threads) for threads in (1, 2))
        assert (two == 2 * one) is not passes
