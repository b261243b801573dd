"""The result of a push, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.sizes import counted, show_size


def pushed_sentence(document: Mapping[str, Any]) -> str:
    """Return a line that names the uploaded model.

    Args:
        document: that of ``push --json``.
    """
    nbytes, there = document["bytes"], document["bytes"] - document["sent"]
    known = f" ({show_size(there)} were already there)" if there else ""
    what = f"{counted(len(document['files']), 'file')}, {show_size(nbytes)}{known}"
    return f"Done: {what}, in {document['repo']}"
