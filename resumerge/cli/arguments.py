"""What the commands take, each argument and option once, with its help."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from resumerge.cli.commands import Argument, BadParameter, Option
from resumerge.report.sizes import parse_size
from resumerge.ui.progress.styles import Style


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadParameter(str(error)) from None


def _work_in(folder: Path | None) -> Path | None:
    try:
        if folder is not None:
            os.chdir(folder)
    except OSError as error:
        raise BadParameter(f"{folder}: {error.strerror}") from None
    return folder


Config = Annotated[Path, Argument(metavar="CONFIG", help="A mergekit recipe (YAML).")]
Out = Annotated[Path, Argument(metavar="OUT", help="The folder to write the model to.")]
Run = Annotated[
    str | None,
    Argument(
        metavar="RUN", help="A run id, output folder or mirror (hf://org/name); else the newest."
    ),
]
StateDir = Annotated[
    Path | None,
    Option(help="Where ledgers live (default ./state, or RESUMERGE_STATE_DIR)."),
]
Memory = Annotated[
    int | None, Option(parser=_size, metavar="SIZE", help="RAM budget, like 2GB (auto).")
]
MemoryWait = Annotated[
    float,
    Option(min=0, metavar="SECONDS", help="How long to wait where there is no memory."),
]
Threads = Annotated[
    int | None,
    Option("--threads", "--num-threads", min=1, help="Worker threads (the cores)."),
]
Device = Annotated[str, Option(help="cpu, cuda, cuda:1 or auto.")]
ShardSize = Annotated[
    int | None,
    Option(
        "--shard-size",
        "--out-shard-size",
        "--max-shard-size",
        parser=_size,
        metavar="SIZE",
        help="Largest output shard (5GB).",
    ),
]
Seed = Annotated[int | None, Option("--seed", "--random-seed", help="For randomized methods (0).")]
Offline = Annotated[bool, Option("--offline", help="Touch no network.")]
Evict = Annotated[
    bool, Option("--evict", help="Delete downloads of this run when nothing needs them.")
]
Mirror = Annotated[
    str | None,
    Option(metavar="DEST", help="Copy it to a folder, or hf://org/name, as it goes."),
]
MirrorThenDelete = Annotated[
    bool | None,
    Option("--mirror-then-delete", help="Delete a shard here once the mirror has it."),
]
MirrorRate = Annotated[
    int | None,
    Option(parser=_size, metavar="SIZE", help="Bytes in a second for the mirror (no limit)."),
]
MirrorWait = Annotated[
    float | None,
    Option(min=0, metavar="SECONDS", help="How long to wait for a mirror that fails (600)."),
]
TakeOver = Annotated[
    bool, Option("--take-over", help="The machine that holds the mirror is dead: go on.")
]
BringBack = Annotated[
    bool, Option("--bring-back", help="Also bring here what is only in the mirror.")
]
Output = Annotated[
    Path | None,
    Option(metavar="DIR", help="Output folder of a run that comes from a mirror (./NAME)."),
]
Restart = Annotated[bool, Option("--restart", help="Give up the run in OUT and start over.")]
Chdir = Annotated[
    Path | None,
    Option(
        "--chdir",
        metavar="DIR",
        callback=_work_in,
        is_eager=True,
        help="Work as if started in this folder.",
    ),
]
StallTimeout = Annotated[
    float,
    Option(
        min=0,
        metavar="SECONDS",
        help="Start a worker without progress anew after this long; 0: never.",
    ),
]
NoSupervise = Annotated[bool, Option("--no-supervise", help="Run in this process.")]
Progress = Annotated[Style, Option(help="How progress is shown: auto, bar, lines, json or none.")]
Json = Annotated[bool, Option("--json", help="For programs.")]
Target = Annotated[str, Argument(metavar="CONFIG|REPO", help="A recipe, or org/name[@revision].")]
