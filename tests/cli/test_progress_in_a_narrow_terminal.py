"""Promise: a progress bar says how far it is and how long it takes, however narrow the terminal."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from resumerge.engine.reporter import ProgressUpdate
from resumerge.sources.hub.prefetch import DownloadProgress
from resumerge.ui.progress.console_reporter import ConsoleReporter

FILE, TENSOR = "model-00003-of-00007.safetensors", "model.layers.13.self_attn.q_proj.weight"


def last_frame(columns: int) -> dict[str, str]:
    """The lines of a bar, by their first word."""
    shown = io.StringIO()
    reporter = ConsoleReporter(Console(file=shown, width=columns, force_terminal=True))
    for done in (10**8, 855 * 10**6):
        reporter.fetching(DownloadProgress(FILE, done, 171 * 10**7))
        reporter.progressed(ProgressUpdate(done, 171 * 10**7, 1, 291, TENSOR))
        time.sleep(0.3)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    reporter.close()
    lines = [line for line in re.split(r"[\r\n]+", text) if line]
    assert all(len(line) <= columns for line in lines)
    return {line.split()[0]: line for line in lines}


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_it_says_what_matters(columns: int) -> None:
    frame = last_frame(columns)
    for word, name in (("downloaded", FILE), ("merged", TENSOR)):
        said = frame[word]
        assert re.search(r" 50% ", said)
        assert re.search(r" \d:\d\d:\d\d ", said)
        assert name[:8] in said
        assert ("855 MB of 1.71 GB" in said) == (columns >= 60)
        assert ("━━" in said) == (columns >= 80)
        assert (name in said) == (columns >= 120)
