"""The changed weight of one module, from the adapter's tensors for this module."""

from __future__ import annotations

from collections.abc import Mapping

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.orientation import Orientations
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.vocabulary import tokens_of, with_rows
from resumerge.tensors import Adapted, Tensor
from resumerge.tensors.dtypes import FLOATS


class ModuleChanges:
    """The maker of changed weights, one for each module. Matrices that do not fit are refused.

    Args:
        models: the model without and with the adapter, as the recipe names them.
        settings: the adapter's settings, from its config; the defaults if it has none.
        orientations: the orientation in which square weights are stored.
        refusals: the collector of problems, to which misfits are added; none is raised.
    """

    def __init__(
        self,
        models: tuple[str, str],
        settings: LoraConfig,
        orientations: Orientations,
        refusals: Refusals,
    ) -> None:
        self.models = models
        self._settings = settings
        self._orientations, self._refusals = orientations, refusals

    def changed(
        self, name: str, module: str, roles: Mapping[str, Tensor], weight: Tensor
    ) -> Tensor | None:
        """Return the changed weight of a module; None if a problem was added to the refusals.

        Args:
            name: the weight's name in the model.
            module: the module's name in the adapter.
            roles: the adapter's tensors for the module, by role, as in `AdapterNames.modules`.
            weight: the weight without the adapter.
        """
        if roles.keys() == {"delta"}:
            return self._with_tokens(name, module, weight, roles["delta"])
        a = roles.get("A") or roles.get("embedding_A")
        b = roles.get("B") or roles.get("embedding_B")
        if a is None or b is None or len(roles.keys() & {"A", "embedding_B"}) != 1:
            self._refusals.problem("The adapter lacks one of the two matrices of a module", module)
            return None
        magnitude, alpha = roles.get("magnitude"), roles.get("alpha")
        if self._settings.dora and magnitude is None:
            self._refusals.problem(
                "The adapter lacks the magnitude vector of a module (DoRA)", module
            )
            return None
        for tensor in (a, b, weight, magnitude, alpha):
            if tensor is not None and tensor.dtype not in FLOATS:
                self._refusals.mismatch(module, "floating-point tensors", tensor)
                return None
        rank = a.shape[0] if a.shape else 0
        orientations = [
            is_transposed for is_transposed in (False, True) if _fits(a, b, weight, is_transposed)
        ]
        if "embedding_A" in roles:
            orientations = [is_transposed for is_transposed in orientations if is_transposed]
        if not orientations or rank == 0:
            self._refusals.mismatch(
                module,
                f"A and B whose product has shape {list(weight.shape)}, as in {self.models[0]}",
                f"A {list(a.shape)} and B {list(b.shape)}",
            )
            return None
        is_transposed = (
            self._orientations.is_transposed(name) if len(orientations) == 2 else orientations[0]
        )
        if not self.has_rank(module, rank):
            return None
        outputs = b.shape[0]
        if magnitude is not None and magnitude.numel != outputs:
            self._refusals.mismatch(module, f"{outputs} elements", magnitude)
            return None
        if alpha is not None and alpha.numel != 1:
            self._refusals.mismatch(module, "one alpha", alpha)
            return None
        scale = self._settings.scale(module, rank, alpha=1.0 if alpha else None)
        factors = a, b, scale, is_transposed, magnitude, alpha
        return Adapted.of(name, weight, *factors, models=self.models)

    def has_rank(self, module: str, rank: int) -> bool:
        """Return whether a LoRA has the rank that its config states, if any.

        If it has another rank, a problem is added to the refusals.
        """
        stated_rank = self._settings.rank_of(module)
        if stated_rank is not None and stated_rank != rank:
            self._refusals.problem(
                "The adapter's matrices have another rank than its config says",
                module,
                expected=f"rank {stated_rank:g} (r, rank_pattern)",
                found=f"rank {rank}",
                fix="take adapter_config.json and the weights from the same place: the scale "
                "follows from the rank, and peft does not load them either",
            )
        return stated_rank is None or stated_rank == rank

    def _with_tokens(self, name: str, module: str, weight: Tensor, delta: Tensor) -> Tensor | None:
        """Return an embedding with the adapter's rows of tokens; None if they do not fit."""
        tokens = tokens_of(module, self._settings.tokens)
        are_floats = {weight.dtype, delta.dtype} <= FLOATS.keys()
        changed_table = with_rows(name, weight, delta, tokens) if are_floats else None
        if changed_table is None:
            self._refusals.mismatch(
                module,
                "trainable_token_indices in the adapter's config: a row for each, of "
                f"{list(weight.shape)}, as in {self.models[0]}",
                f"{len(tokens)} tokens and {delta.dtype} {list(delta.shape)}",
            )
        return changed_table


def _fits(a: Tensor, b: Tensor, weight: Tensor, transposed: bool) -> bool:
    """Return whether ``B @ A`` has the shape of the weight, or of its transpose.

    Args:
        a: the matrix A, (rank, in); for a convolution, with the dimensions of its kernel.
        b: the matrix B, (out, rank).
        weight: the model's weight as it is stored.
        transposed: whether to compare with the transpose.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or len(weight.shape) < 2:
        return False
    if b.numel != b.shape[0] * b.shape[1] or b.shape[1] != a.shape[0]:
        return False
    if transposed:
        return len(a.shape) == len(weight.shape) == 2 and weight.shape == (a.shape[1], b.shape[0])
    return weight.shape == (b.shape[0], *a.shape[1:])
