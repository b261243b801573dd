"""The comparison of a layer's gates: notes on gates that hardly distinguish experts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from resumerge.sizes import counted

LEAST_DISTANCE = 0.2
"""The distance from linear combinations of other gates below which a note names a gate.

For two gates, the limit is a cosine of 0.98. A larger limit leads to more notes.
"""

TAKES_PART = 0.2
"""The largest factor of a gate in a linear combination at which the note does not name the gate."""

MOST_NOTES = 8


def dependent_gates(gates: np.ndarray) -> dict[tuple[int, ...], list[int]]:
    """Return the layers in which gates hardly distinguish experts, by the experts' numbers.

    In each key, the gate of the last expert is nearly a linear combination of the gates of the
    experts before it. A key with a single expert means a gate of nearly zeros.

    Args:
        gates: unit vectors, (layers, experts, hidden).
    """
    layers_by_experts: dict[tuple[int, ...], list[int]] = {}
    for layer, rows in enumerate(gates.astype(np.float64)):
        products = rows @ rows.T
        for number in range(len(rows)):
            products_before, own_products = products[:number, :number], products[number, :number]
            factors = (
                np.linalg.lstsq(products_before, own_products, rcond=1e-9)[0]
                if number
                else own_products
            )
            if products[number, number] - own_products @ factors < LEAST_DISTANCE**2:
                experts_in_combination = np.flatnonzero(np.abs(factors) > TAKES_PART).tolist()
                layers_by_experts.setdefault((*experts_in_combination, number), []).append(layer)
    return layers_by_experts


def dependence_notes(gates: np.ndarray) -> Iterator[str]:
    """Yield notes on gates that hardly distinguish experts.

    Args:
        gates: unit vectors, (layers, experts, hidden). If all layers have the same gates, there is
            one layer.
    """
    layers_by_experts = dependent_gates(gates)
    most_frequent = sorted(layers_by_experts.items(), key=lambda item: -len(item[1]))
    for experts, layers in most_frequent[:MOST_NOTES]:
        noun = "layer" if len(layers) == 1 else "layers"
        scope = "all layers" if len(layers) == len(gates) else f"{noun} {_numbers(layers)}"
        if len(experts) == 1:
            yield (
                f"the gate of expert {experts[0]} is zero in {scope}: its positive and negative "
                "prompts say the same"
            )
        else:
            names = f"{', '.join(map(str, experts[:-1]))} and {experts[-1]}"
            relation = "the same" if len(experts) == 2 else "dependent"
            yield (
                f"the gates of experts {names} are nearly {relation} in {scope}: give them prompts "
                "that differ more"
            )
    if len(layers_by_experts) > MOST_NOTES:
        further_groups = counted(len(layers_by_experts) - MOST_NOTES, "further group")
        yield f"gates of {further_groups} of experts are nearly dependent"


def _numbers(numbers: list[int]) -> str:
    """Return ascending numbers as text, with ranges of consecutive numbers: ``0 to 3, 7``."""
    number_ranges: list[list[int]] = []
    for number in numbers:
        if number_ranges and number == number_ranges[-1][1] + 1:
            number_ranges[-1][1] = number
        else:
            number_ranges.append([number, number])
    return ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in number_ranges
    )
