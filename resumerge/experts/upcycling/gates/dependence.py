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
            before, own = products[:number, :number], products[number, :number]
            factors = np.linalg.lstsq(before, own, rcond=1e-9)[0] if number else own
            if products[number, number] - own @ factors < LEAST_DISTANCE**2:
                others = np.flatnonzero(np.abs(factors) > TAKES_PART).tolist()
                layers_by_experts.setdefault((*others, number), []).append(layer)
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
        where = "all layers" if len(layers) == len(gates) else f"{noun} {_numbers(layers)}"
        if len(experts) == 1:
            yield (
                f"the gate of expert {experts[0]} is zero in {where}: its positive and negative "
                "prompts say the same"
            )
        else:
            names = f"{', '.join(map(str, experts[:-1]))} and {experts[-1]}"
            relation = "the same" if len(experts) == 2 else "dependent"
            yield (
                f"the gates of experts {names} are nearly {relation} in {where}: give them prompts "
                "that differ more"
            )
    if len(layers_by_experts) > MOST_NOTES:
        others = counted(len(layers_by_experts) - MOST_NOTES, "further group")
        yield f"gates of {others} of experts are nearly dependent"


def _numbers(numbers: list[int]) -> str:
    """Return ascending numbers as text, with ranges of consecutive numbers: ``0 to 3, 7``."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in rows)
