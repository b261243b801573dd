"""Draw docs/demo.svg, the picture of the README: what `resumerge demo` prints, in a terminal.

python -m benchmarks.record_demo
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"
COLUMNS = 100


def said_by_demo() -> str:
    """What the demo leaves on a terminal, with its colours."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "resumerge", "demo"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    ) as process:
        os.close(slave)
        said = b""
        with suppress(OSError):  # that is the end of what a terminal has to say
            while piece := os.read(master, 65536):
                said += piece
    os.close(master)
    if process.returncode:
        raise SystemExit(said.decode())
    return said.decode()


def as_left(said: str) -> str:
    """Without what was drawn over (bars, and how they were removed), and without the
    status' tables and first plots, which would make the picture too high.
    """
    lines = [line.split("\r")[-1] for line in said.replace("\r\n", "\n").split("\n")]
    text = re.sub(r"\x1b\[(?![0-9;]*m)[0-9;?]*[A-Za-z]", "", "\n".join(lines))
    kept, left_out, plots = [], False, 0
    for line in text.split("\n"):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        plots += plain.startswith("memory:")
        if re.match(r"\d\. |what happened", plain):
            left_out = False
        elif plain == "attempts" or (plain.startswith("memory:") and plots == 1):
            left_out = True
        if not left_out and not plain.startswith(("To upload", "To remove")):
            kept.append(line)
    return "\n".join(kept)


def main() -> None:
    """Run the demo and write the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("$ resumerge demo\n" + as_left(said_by_demo())))
    console.save_svg(str(PICTURE), title="resumerge demo")


if __name__ == "__main__":
    main()
