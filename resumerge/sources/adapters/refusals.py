"""Messages about an adapter's problems, for its user."""

from __future__ import annotations

import re

from resumerge.errors import InputError, Problem, refuse
from resumerge.sizes import some
from resumerge.sources.adapter_programs import PROGRAMS
from resumerge.sources.index import OF_TORCHTUNE
from resumerge.sources.types import Source
from resumerge.tensors import Tensor

_KNOWN = re.compile(r"\.lora_(down|up|[AB])\.weight$|\.alpha$")
"""Names of matrices and alphas, whichever program gives them."""

_LYCORIS = re.compile(r"\.(hada_|lokr_|oft_|diff(_b)?$|lora_mid|dora_scale|[wb]_norm)")
"""Names of tensors of LyCORIS that are no LoRA."""

_TORCHTUNE = re.compile(r"\.(lora_[ab]\.weight|magnitude)$")
"""Names of matrices and magnitude vectors as torchtune has them."""


def without_config(adapter: Source) -> InputError:
    """Return the error for an adapter without a config whose tensors have unknown names."""
    others = [name for name in adapter.tensors if not _KNOWN.search(name)]
    if adapter.kind == "local" and (adapter.folder / "adapter_config.json").is_file():
        return refuse(
            "The adapter's options are in a file beside its weights",
            where=adapter.ref.text,
            expected="the folder that has adapter_config.json",
            found="its weight file alone",
            fix=f"name the folder: {adapter.folder}",
        )
    if any(map(_LYCORIS.search, others)):
        fix = "it is one of LyCORIS (LoHa, LoKr, DoRA…): merge it with the tools that it is from"
    elif any(map(_TORCHTUNE.search, others)):
        fix = OF_TORCHTUNE
    else:
        fix = "put the adapter_config.json that was saved with it beside it, and name the folder"
    known = " or ".join(program.name for program in PROGRAMS if not program.has_config)
    return refuse(
        "The adapter has no adapter_config.json, and its names are not those of one program",
        where=adapter.ref.text,
        expected=f"an adapter_config.json, or all names as {known} give them",
        found=some(sorted(others or adapter.tensors), most=5)[:300],
        fix=fix,
    )


def problem_with(
    adapter: Source, what: str, name: str, *, expected: str = "", found: str = "", fix: str
) -> Problem:
    """Return a problem with a tensor or module of an adapter."""
    return Problem(
        what,
        where=adapter.ref.text,
        expected=expected or "an adapter as peft saves it",
        found=f"{name[:200]}: {found}" if found else name[:200],
        fix=fix,
    )


class Refusals:
    """The problems of one adapter on its model, collected.

    Args:
        base: the model.
        adapter: the adapter.

    Attributes:
        problems: the collected problems.
    """

    def __init__(self, base: Source, adapter: Source) -> None:
        self._base = base
        self._adapter = adapter
        self.problems: list[Problem] = []

    def problem(
        self, what: str, name: str, *, expected: str = "", found: str = "", fix: str = ""
    ) -> None:
        """Add a problem with a tensor or module of the adapter."""
        fix = fix or "download or save the adapter again, or merge it with peft first"
        self.problems.append(
            problem_with(self._adapter, what, name, expected=expected, found=found, fix=fix)
        )

    def unknown(self, key: str) -> None:
        """Add the problem of a tensor of the adapter that is no matrix of a LoRA."""
        fix = OF_TORCHTUNE if _TORCHTUNE.search(key) else ""
        self.problem("The adapter has a tensor of an unknown kind", key, fix=fix)

    def mismatch(self, name: str, expected: str, found: Tensor | str) -> None:
        """Add the problem of a tensor with another shape or type than the model's."""
        if isinstance(found, Tensor):
            found = f"{found.dtype} {list(found.shape)} of {found.name}"
        self.problem(
            "The adapter does not fit the model",
            name,
            expected=expected,
            found=found,
            fix=self._another_model,
        )

    def no_module(self, module: str, expected: str | None) -> None:
        """Add the problem of a module of the adapter that the model lacks.

        Args:
            module: its name in the adapter.
            expected: what the model should have; None for a tensor of the module's name.
        """
        self.problem(
            "The adapter changes a module that the model lacks",
            module,
            expected=expected or f"a tensor {module}.weight in {self._base.ref}",
            fix=self._another_model,
        )

    def no_place(self, key: str) -> None:
        """Add the problem of a whole tensor that replaces no tensor of the model."""
        self.problem(
            "The adapter has a whole tensor that the model has no place for",
            key,
            expected=f"the name of a tensor of {self._base.ref}, or a head of a classifier "
            "that the adapter's task_type and modules_to_save name",
            fix=f"{self._another_model}; or delete the tensor from the adapter if it is no part "
            "of the model",
        )

    def doubled(self, first: str, second: str) -> None:
        """Add the problem of two tensors of the adapter with the same meaning."""
        self.problem(
            "Two tensors of the adapter have names that mean the same",
            second,
            expected="one tensor for each",
            found=f"also {first[:200]}",
            fix="delete the one that does not belong to the adapter",
        )

    def unknown_ties(self, name: str) -> None:
        """Add the problem of a changed tensor of which other tensors may be copies."""
        self.problem(
            "The adapter changes a tensor that the model may tie to others, which are not known",
            name,
            expected="a model with tie_word_embeddings: false",
            fix="save the model with tensors of their own for all of them (transformers) and name "
            "that in place of the base, or merge it with peft first",
        )

    @property
    def _another_model(self) -> str:
        named = self._adapter.config.get("base_model_name_or_path")
        known = isinstance(named, str) and named
        return "name the model that the adapter was trained on" + (
            f": its config says {str(named)[:100]!r}" if known else ""
        )
