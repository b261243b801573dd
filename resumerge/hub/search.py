"""Which models the Hub has."""

from __future__ import annotations

from itertools import islice

from resumerge.errors import refuse
from resumerge.hub.client import hub_call, is_offline


def search_models(
    words: str, *, author: str | None = None, most: int = 20, token: str | bool | None = None
) -> list[str]:
    """Return the names of models on the Hub, those that it finds fittest first.

    Args:
        words: part of their names; empty for any.
        author: the user or organisation that they are of; None for any.
        most: the largest number of names.
        token: the token to search with; None for that of this process, False for none.

    Raises:
        InputError: the network is off, or the Hub refuses.
        Resumable: the Hub cannot be reached.
    """
    if is_offline():
        raise refuse(
            "Offline mode is on, and the Hub cannot be searched",
            where="HF_HUB_OFFLINE",
            fix="unset HF_HUB_OFFLINE, or write the names of cached models",
        )
    from huggingface_hub import HfApi

    def ask() -> list[str]:
        listed = HfApi(token=token).list_models(search=words or None, author=author, limit=most)
        return [model.id for model in islice(listed, most)]

    return hub_call(ask, "a search for models", None)
