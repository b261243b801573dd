"""The messages about problems of adapters."""

from __future__ import annotations

import re

from resumerge.errors import InputError, Problem, refuse
from resumerge.sizes import some
from resumerge.sources.adapter_programs import PROGRAMS
from resumerge.sources.index import OF_TORCHTUNE
from resumerge.sources.types import Source
from resumerge.tensors import Tensor

_KNOWN = re.compile(r"\.lora_(down|up|[AB])\.weight$|\.alpha$")
"""The endings of names of matrices and alphas, in any program's spelling."""

_LYCORIS = re.compile(r"\.(hada_|lokr_|oft_|diff(_b)?$|lora_mid|dora_scale|[wb]_norm)")
"""The parts of names that mark LyCORIS's tensors of other kinds than LoRA."""

_TORCHTUNE = re.compile(r"\.(lora_[ab]\.weight|magnitude)$")
"""The endings of torchtune's names of matrices and magnitude vectors."""


def without_config(adapter: Source) -> InputError:
    """Return the error for an adapter without a config whose tensors have unknown names."""
    unknown_names = [name for name in adapter.tensors if not _KNOWN.search(name)]
    if adapter.kind == "local" and (adapter.folder / "adapter_config.json").is_file():
        return refuse(
            "The adapter's options are in a file beside its weights",
            where=adapter.ref.text,
            expected="the folder that has adapter_config.json",
            found="its weight file alone",
            fix=f"name the folder: {adapter.folder}",
        )
    if any(map(_LYCORIS.search, unknown_names)):
        fix = "it is one of LyCORIS (LoHa, LoKr, DoRA…): merge it with the tools that it is from"
    elif any(map(_TORCHTUNE.search, unknown_names)):
        fix = OF_TORCHTUNE
    else:
        fix = "put the adapter_config.json that was saved with it beside it, and name the folder"
    program_names = " or ".join(program.name for program in PROGRAMS if not program.has_config)
    return refuse(
        "The adapter has no adapter_config.json, and its names are not those of one program",
        where=adapter.ref.text,
        expected=f"an adapter_config.json, or all names as {program_names} give them",
        found=some(sorted(unknown_names or adapter.tensors), most=5)[:300],
        fix=fix,
    )


def problem_with(
    adapter: Source, what: str, name: str, *, expected: str = "", found: str = "", fix: str
) -> Problem:
    """Return a problem with a tensor or module of an adapter.

    Args:
        adapter: the adapter, which the message names by its reference in the recipe.
        what: the problem in words.
        name: the name of the tensor or module.
        expected: the expected content; empty for an adapter of peft.
        found: the content that was found, if more than the name.
        fix: the advice to the user.
    """
    return Problem(
        what,
        where=adapter.ref.text,
        expected=expected or "an adapter as peft saves it",
        found=f"{name[:200]}: {found}" if found else name[:200],
        fix=fix,
    )


class Refusals:
    """The collector of the problems of one adapter on its model.

    Args:
        base: the model that the adapter is added to in the recipe.
        adapter: the adapter, opened; its config may name the model that it was trained on.

    Attributes:
        model: the model's reference in the recipe.
        problems: the collected problems.
    """

    def __init__(self, base: Source, adapter: Source) -> None:
        self._adapter = adapter
        self.model = base.ref.text
        self.problems: list[Problem] = []

    def problem(
        self, what: str, name: str, *, expected: str = "", found: str = "", fix: str = ""
    ) -> None:
        """Add a problem with a tensor or module of the adapter; see `problem_with`."""
        fix = fix or "download or save the adapter again, or merge it with peft first"
        self.problems.append(
            problem_with(self._adapter, what, name, expected=expected, found=found, fix=fix)
        )

    def unknown(self, key: str) -> None:
        """Add the problem that a tensor of the adapter has an unknown name."""
        fix = OF_TORCHTUNE if _TORCHTUNE.search(key) else ""
        self.problem("The adapter has a tensor of an unknown kind", key, fix=fix)

    def mismatch(self, name: str, expected: str, found: Tensor | str) -> None:
        """Add the problem that a tensor or module of the adapter does not fit the model.

        Args:
            name: the name of the tensor or module.
            expected: the expected shape or type, in words.
            found: the tensor, or its shape and type in words.
        """
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
        """Add the problem that the model lacks a module of the adapter.

        Args:
            module: the module's name in the adapter.
            expected: the tensor that the model should have, in words; None for a tensor with the
                module's name.
        """
        self.problem(
            "The adapter changes a module that the model lacks",
            module,
            expected=expected or f"a tensor {module}.weight in {self.model}",
            fix=self._another_model,
        )

    def no_place(self, key: str) -> None:
        """Add the problem that a whole tensor replaces no tensor of the model.

        Args:
            key: the adapter's name of the tensor.
        """
        self.problem(
            "The adapter has a whole tensor that the model has no place for",
            key,
            expected=f"the name of a tensor of {self.model}, or a head of a classifier "
            "that the adapter's task_type and modules_to_save name",
            fix=f"{self._another_model}; or delete the tensor from the adapter if it is no part "
            "of the model",
        )

    def doubled(self, first: str, second: str) -> None:
        """Add the problem that two tensors of the adapter have the same meaning."""
        self.problem(
            "Two tensors of the adapter have names that mean the same",
            second,
            expected="one tensor for each",
            found=f"also {first[:200]}",
            fix="delete the one that does not belong to the adapter",
        )

    def unknown_ties(self, name: str) -> None:
        """Add the problem that other tensors may be tied to a changed tensor."""
        self.problem(
            "The adapter changes a tensor that the model may tie to others, which are not known",
            name,
            expected="a model with tie_word_embeddings: false",
            fix="save the model with tensors of their own for all of them (transformers) and name "
            "that in place of the base, or merge it with peft first",
        )

    @property
    def _another_model(self) -> str:
        base_name = self._adapter.config.get("base_model_name_or_path")
        is_named = isinstance(base_name, str) and base_name
        return "name the model that the adapter was trained on" + (
            f": its config says {str(base_name)[:100]!r}" if is_named else ""
        )
