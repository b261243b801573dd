"""The reader of layer ranges, and the comparison of the ranges of a slice's sources."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from resumerge.recipe.invalid import InvalidValue, describe

LayerRange = tuple[int, int]


def read_layer_range(value: object) -> LayerRange:
    """Return (start, stop) of layers counted from 0, stop exclusive.

    Whole numbers may be written as text or with a decimal point, as in mergekit.

    Raises:
        InvalidValue: the value is not a list of two whole numbers with 0 <= start < stop.
    """
    ends = [whole_number(end) for end in value] if isinstance(value, list) else []
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and 0 <= ends[0] < ends[1]:
        return ends[0], ends[1]
    raise InvalidValue(
        "This is not a range of layers",
        expected="[start, stop]: two whole numbers, 0 <= start < stop; stop is not included",
        found=describe(value),
        fix="For the first eight layers, write layer_range: [0, 8]",
    )


def check_equal_lengths(sources: Sequence[tuple[str, LayerRange]]) -> None:
    """Check that all sources of a slice have the same number of layers.

    Args:
        sources: for each source, the model as written, and its layer range.

    Raises:
        InvalidValue: the numbers differ. `fix` and `paste` describe two ways to change the ranges.
    """
    counts = [stop - start for _, (start, stop) in sources]
    if len(set(counts)) <= 1:
        return
    first_unequal = next(index for index, count in enumerate(counts) if count != counts[0])
    fewest_layers = min(counts)
    equal_ranges = spelled_slices(
        [[(model, (start, start + fewest_layers)) for model, (start, _) in sources]]
    )
    separate_slices = spelled_slices([[source] for source in sources])
    raise InvalidValue(
        "The sources of this slice have different numbers of layers",
        expected="the same number of layers from every source: layer i of each is merged",
        found=", ".join(
            f"{model} [{start}, {stop}] has {stop - start}" for model, (start, stop) in sources
        ),
        fix=f"To merge {fewest_layers} layers of each, write equal ranges, as in the first lines "
        "below; to stack the ranges, write separate slices, as in the last ones",
        paste=f"# {fewest_layers} layers of each, merged:\n{equal_ranges}# stacked:\n"
        f"{separate_slices}",
        at=(first_unequal, "layer_range"),
    )


def spelled_slices(slices: Sequence[Sequence[tuple[str, LayerRange]]]) -> str:
    """Return entries of ``slices:`` as YAML that can be copied into a recipe.

    Args:
        slices: for each slice, the model and the layer range of each of its sources.
    """
    entries = [
        {"sources": [{"model": model, "layer_range": list(range_)} for model, range_ in sources]}
        for sources in slices
    ]
    return yaml.safe_dump(
        entries, sort_keys=False, default_flow_style=None, allow_unicode=True, width=10**6
    )


def whole_number(value: object) -> int | None:
    """Return a whole number from an int, float or text; None for any other value."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    return int(value) if isinstance(value, float) and value.is_integer() else None
