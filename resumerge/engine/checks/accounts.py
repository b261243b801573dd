"""The check of the tensors' accounts, which refuses tensors that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.accounts import Accounts
from resumerge.errors import Problem
from resumerge.layout import listed
from resumerge.sizes import counted


def problems_of_accounts(accounts: Accounts, *, strict: bool) -> Iterator[Problem]:
    """Yield a problem for each model with unused tensors that must not be left out.

    Args:
        accounts: the use of every tensor of the models, or the reason why it is not used.
        strict: whether tensors that are left out for a reason are also problems, unless nothing is
            lost without them.
    """
    for model in accounts.models:
        if names := model.unused.get(None):
            yield Problem(
                f"{counted(len(names), 'tensor')} would be lost",
                where=model.model,
                expected="every tensor used, or left out for a reason",
                found=listed(sorted(names)),
                fix="Report this as a bug in resumerge, with the recipe; or leave this model out",
            )
        elif strict and model.lost:
            lost_count = sum(map(len, model.lost.values()))
            yield Problem(
                f"{counted(lost_count, 'tensor')} would not be used",
                where=model.model,
                expected="every tensor of every model used, because of --strict",
                found="; ".join(
                    f"{len(names)} {reason.phrase}: {listed(names)}"
                    for reason, names in model.lost.items()
                    if reason
                ),
                fix="Change the recipe so that it takes them, or leave out --strict",
            )
