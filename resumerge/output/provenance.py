"""Provenance: the versions, options and pins of a merge, as metadata of its model card.

Together with the recipe, they suffice to make the model again on a machine without the run's
ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from resumerge.planning.plan import Plan
from resumerge.planning.versions import Versions
from resumerge.sources.types import REMOTE, Source

KEY = "resumerge"
"""The key of the provenance in the card's metadata."""

_FENCE = "---\n"


@dataclass(frozen=True)
class Provenance:
    """The versions, options and pins of a merge.

    Args:
        versions: the versions of software that can change the output's bytes, by name.
        options: the options that the plan was made with, by name.
        models: the pin of each model, by the text of its reference: the `revision` of a remote
            model, or the `content` of a local model, which is the checksum of the bytes that the
            recipe reads.
    """

    versions: Mapping[str, Any]
    options: Mapping[str, Any]
    models: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, plan: Plan, contents: Mapping[str, str]) -> Provenance:
        """Return the provenance of a plan.

        Args:
            plan: the plan of one model, with the options that it was made with.
            contents: the checksum of the bytes that were read of each local model, by the text of
                its reference.
        """
        parts = [part for source in plan.own_sources for part in source.parts.values()]
        return cls(
            Versions.of_plan(plan).known,
            planned_options(plan),
            {part.ref.text: _pin(part, contents) for part in parts},
        )

    @property
    def computing(self) -> Versions:
        """The versions that affect the arithmetic.

        The program's own version is not one of them: its numerics have a separate version.
        """
        versions = self.versions.items()
        return Versions({name: value for name, value in versions if name != "resumerge"})

    def as_metadata(self) -> dict[str, Any]:
        """Return the value of `KEY` in the card's metadata."""
        models = [{"model": model, **pin} for model, pin in self.models.items()]
        return {"versions": dict(self.versions), "options": dict(self.options), "models": models}


def planned_options(plan: Plan) -> dict[str, Any]:
    """Return the options that a model was planned with, by name.

    Options about other models of the run, such as ``keep``, are not included.
    """
    unshared = {f"tensor_{plan.unshared.value}": True} if plan.unshared.value else {}
    return {"seed": plan.seed, "shard_size": plan.shard_size, **unshared}


def read_provenance(card: str) -> Provenance | None:
    """Return the provenance in an untrusted model card; None without a readable one."""
    before_metadata, metadata, _ = [*card.replace("\r\n", "\n").split(_FENCE, 2), "", ""][:3]
    try:
        fields = {} if before_metadata.strip() else yaml.safe_load(metadata)[KEY]
        models = {
            model_pin["model"]: {
                key: str(model_pin[key]) for key in ("revision", "content") if key in model_pin
            }
            for model_pin in fields["models"]
        }
        return Provenance(dict(fields["versions"]), dict(fields["options"]), models)
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _pin(part: Source, contents: Mapping[str, str]) -> dict[str, str]:
    if part.kind in REMOTE:
        return {"revision": part.revision or ""}
    content = contents.get(part.ref.text)
    return {"content": content} if content else {}
