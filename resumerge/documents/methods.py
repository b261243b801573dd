"""The document of ``resumerge methods --json``, made from the declarations of the methods."""

from __future__ import annotations

from typing import Any

from resumerge.methods import METHODS, MergeMethod, Parameter
from resumerge.methods.base import FLOAT32_MAX
from resumerge.planning.check_recipe import find_method


def methods_json(name: str | None) -> dict[str, Any]:
    """Return the document of ``methods --json``: the named method, or all methods for None.

    Raises:
        InputError: there is no such method.
    """
    selected = [find_method(name)] if name is not None else list(METHODS.values())
    return {"methods": [_method(method) for method in selected]}


def _method(method: MergeMethod) -> dict[str, Any]:
    return {
        "name": method.name,
        "version": method.version,
        "summary": method.summary,
        "base_model": method.base,
        "models": {"fewest": method.fewest, "most": method.most},
        "parameters": [_parameter(parameter) for parameter in method.parameters],
        "papers": [{"title": paper.title, "url": paper.url} for paper in method.papers],
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        "per_model": parameter.per_model,
        "required": parameter.required,
        "default": None if parameter.required else parameter.default,
        "low": _limit(parameter, parameter.low),
        "high": _limit(parameter, parameter.high),
        "meaning": parameter.meaning,
    }


def _limit(parameter: Parameter, limit: float) -> float | None:
    """Return a limit of a numeric parameter; None for no limit, and for a bool."""
    unlimited = parameter.kind == "bool" or abs(limit) >= FLOAT32_MAX
    return None if unlimited else limit
