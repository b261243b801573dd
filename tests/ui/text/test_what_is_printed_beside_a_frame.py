"""What is printed while a frame is drawn has a line of its own, whichever thread writes first."""

from __future__ import annotations

import io
import re
from threading import Thread

from rich.console import Console
from rich.text import Text

from resumerge.ui.progress.keepalive import drawn


def test_a_line_rendered_before_the_first_frame_of_the_thread() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    live = drawn(console, lambda: Text("a frame"))
    live.auto_refresh = False
    live.start()
    with console:  # rendered now, written when this ends
        console.print("a line")
        live.get_renderable = lambda: Text("a frame")  # type: ignore[method-assign]
        thread = Thread(target=live.refresh)
        thread.start()
        thread.join()
    live.stop()
    before, _, _ = written.getvalue().partition("a line")
    assert "a frame" in before
    assert re.search(r"\r|\n", before.rpartition("a frame")[2]), before
