"""Searches for models on the Hub."""

from __future__ import annotations

from itertools import islice

from resumerge.errors import refuse
from resumerge.hub.calls import hub_call, is_offline


def search_models(
    words: str, *, author: str | None = None, most: int = 20, token: str | bool | None = None
) -> list[str]:
    """Return the names of models on the Hub, the best matches first.

    Args:
        words: words of the models' names; empty for any name.
        author: the user or organisation that owns the models; None for any owner.
        most: the most names to return.
        token: the token to search with; None for the user's stored token, False for no token.

    Raises:
        InputError: the network is off, or the Hub refuses.
        Resumable: the Hub cannot be reached.
    """
    _check_online()
    from huggingface_hub import HfApi

    def ask() -> list[str]:
        found_models = HfApi(token=token).list_models(
            search=words or None, author=author, limit=most
        )
        return [model.id for model in islice(found_models, most)]

    return hub_call(ask, "a search for models", None)


def models_with(folder: str, without: str, author: str, token: str | None) -> list[str]:
    """Return the names of an author's models that have files in a folder, the newest first.

    Args:
        folder: the folder with a slash at its end, such as ``folder/``.
        without: the name of a file; models that have this file are left out.
        author: the user or organisation that owns the models.
        token: the token to search with; None for the user's stored token.

    Raises:
        InputError: the network is off, or the Hub refuses.
        Resumable: the Hub cannot be reached.
    """
    _check_online()
    from huggingface_hub import HfApi

    def ask() -> list[str]:
        names = []
        found_models = HfApi(token=token).list_models(
            author=author, sort="last_modified", expand=["siblings"]
        )
        for model in found_models:
            files = {file.rfilename for file in model.siblings or ()}
            if without not in files and any(name.startswith(folder) for name in files):
                names.append(model.id)
        return names

    return hub_call(ask, f"the models of {author}", None)


def _check_online() -> None:
    if is_offline():
        raise refuse(
            "Offline mode is on, and the Hub cannot be searched",
            where="HF_HUB_OFFLINE",
            fix="unset HF_HUB_OFFLINE, or write the names of cached models",
        )
