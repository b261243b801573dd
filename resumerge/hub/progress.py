"""Progress of a download as a callback, in place of huggingface_hub's bar.

Without a callback the bar is left to huggingface_hub, which draws it on terminals only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Report = Callable[[str, int], None]
"""Called with a file's name and its bytes downloaded so far."""


def progress_arguments(name: str, report: Report | None) -> dict[str, Any]:
    """Arguments that make hf_hub_download report as bytes come; none if this version cannot."""
    from huggingface_hub import hf_hub_download

    if report is None or "tqdm_class" not in inspect.signature(hf_hub_download).parameters:
        return {}
    return {"tqdm_class": _reporting_bar(name, report)}


def _reporting_bar(name: str, report: Report) -> type:
    from huggingface_hub.utils import tqdm

    class ReportingBar(tqdm):
        """A bar that draws nothing. hf_xet's second bar, of compressed bytes, is not counted."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})
            self.done = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            report(name, self.done)

        def update_transfer(self, n: float) -> None: ...

        def set_transfer_postfix_str(self, *args: Any, **kwargs: Any) -> None: ...

    return ReportingBar
