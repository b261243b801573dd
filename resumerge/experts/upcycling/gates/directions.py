"""The directions that gates point in: made of length 1, and compared with each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from resumerge.sizes import counted

SMALLEST_NORM = 1e-8
"""A shorter vector is divided by this instead of its length."""

LEAST_DISTANCE = 0.2
"""The least distance of a gate from all combinations of other gates. A note names a gate that is
nearer (for two gates: a cosine above 0.98). A larger limit gives more notes."""

TAKES_PART = 0.2
"""A gate is named if it takes part in such a combination with a larger factor."""

MOST_NOTES = 8

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class PromptTokens:
    """The tokens of an expert's prompts, one by one."""

    positive: tuple[Tokens, ...]
    negative: tuple[Tokens, ...]


def unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of length 1 (float64), or a shorter one if the vector is almost zero.

    The length is an exact sum, so that the bits depend on no library.
    """
    norm = math.sqrt(math.fsum((vector * vector).tolist()))
    result: np.ndarray = vector / max(norm, SMALLEST_NORM)
    return result


def dependent_gates(gates: np.ndarray) -> dict[tuple[int, ...], list[int]]:
    """Return layers in which gates hardly tell experts apart, by the numbers of these experts.

    The gate of the last expert is nearly a combination of the gates of the experts before it. An
    expert that is named alone has a gate of zeros.

    Args:
        gates: unit vectors, (layers, experts, hidden).
    """
    found: dict[tuple[int, ...], list[int]] = {}
    for layer, rows in enumerate(gates.astype(np.float64)):
        products = rows @ rows.T
        for number in range(len(rows)):
            before, own = products[:number, :number], products[number, :number]
            factors = np.linalg.lstsq(before, own, rcond=1e-9)[0] if number else own
            if products[number, number] - own @ factors < LEAST_DISTANCE**2:
                others = np.flatnonzero(np.abs(factors) > TAKES_PART).tolist()
                found.setdefault((*others, number), []).append(layer)
    return found


def dependence_notes(gates: np.ndarray) -> Iterator[str]:
    """Yield notes on gates that hardly tell experts apart.

    Args:
        gates: unit vectors, (layers, experts, hidden); one layer if all have the same gates.
    """
    found = dependent_gates(gates)
    often = sorted(found.items(), key=lambda item: -len(item[1]))
    for experts, layers in often[:MOST_NOTES]:
        kind = "layer" if len(layers) == 1 else "layers"
        where = "all layers" if len(layers) == len(gates) else f"{kind} {_numbers(layers)}"
        if len(experts) == 1:
            yield (
                f"the gate of expert {experts[0]} is zero in {where}: its positive and negative "
                "prompts say the same"
            )
        else:
            names = f"{', '.join(map(str, experts[:-1]))} and {experts[-1]}"
            alike = "the same" if len(experts) == 2 else "dependent"
            yield (
                f"the gates of experts {names} are nearly {alike} in {where}: give them prompts "
                "that differ more"
            )
    if len(found) > MOST_NOTES:
        others = counted(len(found) - MOST_NOTES, "further group")
        yield f"gates of {others} of experts are nearly dependent"


def _numbers(numbers: list[int]) -> str:
    """Return ascending numbers as text, consecutive ones as a range: ``0 to 3, 7``."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in rows)
