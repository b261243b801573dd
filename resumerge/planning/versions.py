"""The versions that decide the bytes of a merge. Other machines and model cards compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import resumerge
from resumerge.methods import METHODS
from resumerge.planning.plan import NUMERICS, Plan
from resumerge.tensors import Combined, Merged
from resumerge.tensors.target import BLOCK_ELEMENTS

_METHOD = "merge method "


@dataclass(frozen=True)
class Versions:
    """The versions that decide the output's bytes: of program, numerics, methods and libraries.

    A cluster's task compares them before it unpickles its plan. A model card records them.
    """

    known: Mapping[str, Any]

    @classmethod
    def of_plan(cls, plan: Plan) -> Versions:
        """Return the versions on this machine that matter for a plan."""
        method_names, needs_torch = set[str](), False
        for node in plan.nodes():
            if isinstance(node, Merged):
                method_names.add(node.method)
            elif isinstance(node, Combined):
                method_names.add(node.core.method)
            needs_torch = needs_torch or node.needs_torch
        libraries = ["torch"] if needs_torch else []
        libraries += ["numpy"] if plan.adapter is not None else []
        return cls(
            _versions_here(
                [*_ALWAYS, *libraries, *(_METHOD + name for name in sorted(method_names))]
            )
        )

    def differences(self, there: str) -> list[str]:
        """Return the versions that differ on this machine, one line each.

        Args:
            there: the place where `known` was recorded, in words: ``at the driver``.
        """
        local_versions = _versions_here(self.known)
        return [
            f"{name}: {_shown(self.known[name])} {there}, {_shown(local_versions[name])} here"
            for name in self.known
            if local_versions[name] != self.known[name]
        ]


_ALWAYS = ("resumerge", "numerics", "block")


def _versions_here(names: Iterable[str]) -> dict[str, Any]:
    return {name: _version(name) for name in names}


def _version(name: str) -> Any:
    """Return the version of a part of the program, a method or a package; None if it is missing."""
    if name == "numerics":
        return NUMERICS
    if name == "block":
        return BLOCK_ELEMENTS
    if name == "resumerge":
        return resumerge.__version__
    if name.startswith(_METHOD):
        method = name.removeprefix(_METHOD)
        return METHODS.identity(method) if method in METHODS else None
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"version {value['version']} from {value['origin']}"
    return "none" if value is None else str(value)
