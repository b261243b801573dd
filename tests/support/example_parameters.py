"""Parameters for a recipe of any method: those for which the method declares an example."""

from __future__ import annotations

from resumerge.methods import METHODS, Parameter

PART = 0.6
"""The factor of an example's value: a value of 1.0 would change nothing."""


def example_parameters(method: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the parameters of each model, and those of the merge."""
    declared = METHODS[method].parameters
    per_model = {p.name: _value(p) for p in declared if p.per_model and p.example is not None}
    whole = {p.name: _value(p) for p in declared if not p.per_model and p.example is not None}
    return per_model, whole


def _value(parameter: Parameter) -> float:
    assert parameter.example is not None
    return parameter.example * (PART if parameter.kind == "float" else 1)
