"""The result of a push, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.sizes import counted, show_size


def pushed_sentence(document: Mapping[str, Any]) -> str:
    """Return a line that names the uploaded model.

    Args:
        document: the document of ``push --json``.
    """
    total_bytes, skipped_bytes = document["bytes"], document["bytes"] - document["sent"]
    skipped_text = f" ({show_size(skipped_bytes)} were already there)" if skipped_bytes else ""
    upload_text = (
        f"{counted(len(document['files']), 'file')}, {show_size(total_bytes)}{skipped_text}"
    )
    return f"Done: {upload_text}, in {document['repo']}"
