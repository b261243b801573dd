"""Downloads through Xet by huggingface_hub. The caller verifies the content."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resumerge.hub.calls import hub_call

XET_ONLY = 50_000_000_000
"""The size in bytes above which the Hub serves a file only through Xet."""


def is_served_by_xet(repo: str, commit: str, name: str, size: int, partial: Path) -> bool:
    """Return whether a file has to be downloaded through Xet, not by range requests.

    A partial file is completed over HTTP if possible, which serves the same bytes.

    Args:
        repo: the repo's id, ``org/name``.
        commit: the id of the commit whose file is requested.
        name: the file's name in the repo.
        size: the file's size in bytes.
        partial: the path of the partial file, which need not exist.
    """
    from huggingface_hub import constants, file_download, get_hf_file_metadata, hf_hub_url

    has_part = partial.exists() and partial.stat().st_size > 0
    if (has_part and size <= XET_ONLY) or getattr(constants, "HF_HUB_DISABLE_XET", True):
        return False
    is_available = getattr(file_download, "is_xet_available", None)
    if is_available is None or not is_available():
        return False
    url = hf_hub_url(repo, name, revision=commit)
    metadata: Any = hub_call(
        lambda: get_hf_file_metadata(url, library_name="resumerge"),
        repo,
        commit,
    )
    return getattr(metadata, "xet_file_data", None) is not None


def download_by_xet(
    repo: str, commit: str, name: str, progressed: Callable[[int], None], *, replace: bool
) -> None:
    """Download a file into the cache by huggingface_hub.

    Args:
        repo: the repo's id, ``org/name``.
        commit: the id of the commit; the file becomes a part of its snapshot in the cache.
        name: the file's name in the repo.
        progressed: called with the number of bytes received so far, if the installed version of
            huggingface_hub can report it.
        replace: whether to replace a damaged file in the cache.
    """
    from huggingface_hub import hf_hub_download

    options: dict[str, Any] = {}
    if "tqdm_class" in inspect.signature(hf_hub_download).parameters:
        options["tqdm_class"] = _silent_bar(progressed)
    hf_hub_download(
        repo,
        name,
        revision=commit,
        force_download=replace,
        library_name="resumerge",
        **options,
    )


def _silent_bar(progressed: Callable[[int], None]) -> type:
    from huggingface_hub.utils import tqdm

    class SilentBar(tqdm):
        """A progress bar that prints nothing. It ignores hf_xet's second bar (compressed bytes)."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]
            self.done = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            progressed(self.done)

        def update_transfer(self, n: float) -> None: ...

        def set_transfer_postfix_str(self, *args: Any, **kwargs: Any) -> None: ...

    return SilentBar
