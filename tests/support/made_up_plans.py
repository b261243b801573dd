"""Plans of recipes for models that exist as headers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.planning import Plan
from resumerge.planning.plan import Unit
from resumerge.planning.planner import make_plan
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.types import Source, SourceFile, numbered
from resumerge.tensors import Gathered, Merged, Rounded, Stored, Tensor, stored_in
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.rows import Rows

WIDTH, TOKENS = 4, 10
REST = ("self_attn.q_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight")


def tensor(name: str, shape: tuple[int, ...], dtype: str = "F32", offset: int = 0) -> Stored:
    return Stored(name, dtype, shape, "m.safetensors", offset)


def llama(
    name: str,
    layers: int = 3,
    dtype: str = "F32",
    *,
    others: Iterable[Stored] = (),
    without: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Source:
    """Return a model of some layers.

    Args:
        others: tensors that replace its own tensors of these names, or are added.
        without: names of tensors that it lacks.
        config: further values of its config.json.
    """
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, WIDTH)}
    for layer in range(layers):
        for rest in REST:
            shape = (WIDTH,) if "norm" in rest else (WIDTH, WIDTH)
            shapes[f"model.layers.{layer}.{rest}"] = shape
    shapes |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (TOKENS, WIDTH)}
    made = {name: tensor(name, shape, dtype) for name, shape in shapes.items()}
    made |= {info.name: info for info in others}
    offset, placed = 0, {}
    for key, info in made.items():
        if key not in set(without):
            placed[key] = replace(info, offset=offset)
            offset += info.nbytes
    facts = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "vocab_size": TOKENS,
        "tie_word_embeddings": False,
        **(config or {}),
    }
    files = {"m.safetensors": SourceFile("m.safetensors", offset, {"header": name})}
    return Source(
        ref=ModelRef(name, name),
        kind="local",
        folder=Path("/nowhere") / name,
        revision=None,
        config=facts,
        tensors=placed,
        files=files,
    )


def vectors(name: str, *sizes: int) -> Source:
    """Return a model with nothing but vectors of these sizes, ``t0`` and so on."""
    others = [tensor(f"t{number}", (size,)) for number, size in enumerate(sizes)]
    return llama(name, 0, others=others, without=list(llama(name, 0).tensors))


def remote(name: str, *sizes: int) -> Source:
    """Return a model of the Hub with a file for each vector, of 100 bytes for each element."""
    source = vectors(name, *sizes)
    tensors = {
        f"t{number}": replace(tensor(f"t{number}", (size,)), file=f"f{number}")
        for number, size in enumerate(sizes)
    }
    files = {
        f"f{number}": SourceFile(f"f{number}", 100 * size, {"etag": "e"}, present=False)
        for number, size in enumerate(sizes)
    }
    return replace(source, kind="hub", revision="c" * 40, tensors=tensors, files=files)


def plan(recipe: str, *models: Source, seed: int = 0, shard_size: int = 1 << 30) -> Plan:
    """Return the plan of a recipe."""
    parsed = parse_recipe(recipe)
    given = {source.ref.name: source for source in models}
    sources = {ref: replace(given[ref.name], ref=ref) for ref in parsed.models}
    return make_plan(parsed, numbered(sources), seed=seed, shard_size=shard_size)


def staged(recipe: str, *models: Source, seed: int = 0) -> Plan:
    """Return the plan of a recipe of several documents, with those of its stages.

    The result of a stage has the config of its first model.
    """
    parsed = parse_recipe(recipe)
    given = {source.ref.name: source for source in models}
    sources = numbered({ref: replace(given[ref.name], ref=ref) for ref in parsed.source_models})
    results: dict[ModelRef, Source] = {}
    plans: list[Plan] = []
    for document in parsed.documents:
        inputs = {ref: results.get(ref) or sources[ref] for ref in document.models}
        made = make_plan(document, inputs, seed=seed, shard_size=1 << 30)
        plans.append(replace(made, sources=tuple(sources.values())))
        ref, number = ModelRef(document.name, document.name), len(sources) + len(results)
        first = made.sources[0]
        tensors = plans[-1].tensors()
        results[ref] = replace(
            first, ref=ref, kind="stage", tensors=tensors, files={}, number=number
        )
    *stages, whole = plans
    return replace(whole, stages=tuple(stages), stage_models=tuple(results.values())[:-1])


def units(found: Plan) -> dict[str, Unit]:
    """Return the units by name."""
    return {unit.name: unit for unit in found.units}


@dataclass(frozen=True)
class Operand:
    """An input of a method, or a tensor that is copied.

    Args:
        tensor: the tensor of its model; the first table if rows are gathered.
    """

    source: int
    tensor: Tensor
    params: Mapping[str, Any]
    rows: Rows | None


@dataclass(frozen=True)
class Expression:
    """The tree of a merge in one stage.

    Args:
        method: the method; ``copy`` if there is none.
        cast: torch's name of the dtype that inputs are rounded to; None if they are not.
    """

    method: str
    operands: tuple[Operand, ...]
    params: Mapping[str, Any]
    base: int | None
    cast: str | None


def expression(unit: Unit) -> Expression:
    """Return the expression that computes a unit."""
    root = unit.expression
    if not isinstance(root, Merged):
        return Expression("copy", (_operand(root, {}),), {}, None, None)
    operands = tuple(_operand(*each) for each in zip(root.operands, root.per_operand))
    casts = {FLOATS[n.dtype] for n in root.nodes() if isinstance(n, Rounded) and n.as_input}
    return Expression(root.method, operands, root.params, root.base, next(iter(casts), None))


def expressions(found: Plan) -> dict[str, Expression]:
    """Return the expression that computes each tensor, by name."""
    return {unit.name: expression(unit) for unit in found.units}


def _operand(tensor: Tensor, params: Mapping[str, Any]) -> Operand:
    rows = tensor.rows if isinstance(tensor, Gathered) else None
    read = (tensor.tables[0] if isinstance(tensor, Gathered) else tensor).unrounded
    return Operand(next(stored_in(read)).source, read, params, rows)


LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
