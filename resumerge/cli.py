"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape

import resumerge
from resumerge.engine.disk_errors import DISK_ERRORS, out_of_order
from resumerge.engine.options import MEMORY_WAIT, STALL_SECONDS, Options
from resumerge.errors import Problem, ResumergeError
from resumerge.printable import printable
from resumerge.ui.alive import told_meanwhile
from resumerge.ui.console import PatientConsole, escape_unknown_letters, silence
from resumerge.ui.mergekit_options import without_mergekit_options
from resumerge.ui.sizes import parse_size
from resumerge.ui.styles import Style

app = typer.Typer(
    name="resumerge",
    help="Merge model weights on machines that cannot be trusted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
err = PatientConsole(stderr=True)
out_console = PatientConsole()


def size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def work_in(folder: Path | None) -> Path | None:
    try:
        if folder is not None:
            os.chdir(folder)
    except OSError as error:
        raise typer.BadParameter(f"{folder}: {error.strerror}") from None
    return folder


Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A mergekit recipe (YAML).")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write the model to.")]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="A run id, output folder or mirror (hf://org/name); else the newest."
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(help="Where ledgers live (default ./state, or RESUMERGE_STATE_DIR)."),
]
Memory = Annotated[
    int | None, typer.Option(parser=size, metavar="SIZE", help="RAM budget, like 2GB (auto).")
]
MemoryWait = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="How long to wait where there is no memory."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", "--num-threads", min=1, help="Worker threads (the cores)."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")]
ShardSize = Annotated[
    int | None,
    typer.Option(
        "--shard-size",
        "--out-shard-size",
        "--max-shard-size",
        parser=size,
        metavar="SIZE",
        help="Largest output shard (5GB).",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", "--random-seed", help="For randomized methods (0).")
]
Offline = Annotated[bool, typer.Option("--offline", help="Touch no network.")]
Evict = Annotated[
    bool, typer.Option("--evict", help="Delete downloads of this run when nothing needs them.")
]
Mirror = Annotated[
    str | None,
    typer.Option(metavar="DEST", help="Copy it to a folder, or hf://org/name, as it goes."),
]
MirrorThenDelete = Annotated[
    bool,
    typer.Option("--mirror-then-delete", help="Delete a shard here once the mirror has it."),
]
MirrorRate = Annotated[
    int | None,
    typer.Option(parser=size, metavar="SIZE", help="Bytes in a second for the mirror (no limit)."),
]
MirrorWait = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="How long to wait for a mirror that fails (600)."),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="The machine that holds the mirror is dead: go on.")
]
BringBack = Annotated[
    bool, typer.Option("--bring-back", help="Also bring here what is only in the mirror.")
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Output folder of a run that comes from a mirror (./NAME)."),
]
Restart = Annotated[bool, typer.Option("--restart", help="Give up the run in OUT and start over.")]
Chdir = Annotated[
    Path | None,
    typer.Option(
        "--chdir",
        metavar="DIR",
        callback=work_in,
        is_eager=True,
        help="Work as if started in this folder.",
    ),
]
StallTimeout = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Start a worker without progress anew after this long; 0: never.",
    ),
]
NoSupervise = Annotated[bool, typer.Option("--no-supervise", help="Run in this process.")]
Progress = Annotated[
    Style, typer.Option(help="How progress is shown: auto, bar, lines, json or none.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def run(
    config: Config,
    out: Out,
    state_dir: StateDir = None,
    memory: Memory = None,
    threads: Threads = None,
    device: Device = "cpu",
    shard_size: ShardSize = None,
    seed: Seed = None,
    offline: Offline = False,
    restart: Restart = False,
    memory_wait: MemoryWait = MEMORY_WAIT,
    evict: Evict = False,
    mirror: Mirror = None,
    mirror_then_delete: MirrorThenDelete = False,
    mirror_rate: MirrorRate = None,
    mirror_wait: MirrorWait = None,
    take_over: TakeOver = False,
    bring_back: BringBack = False,
    no_supervise: NoSupervise = False,
    stall_timeout: StallTimeout = STALL_SECONDS,
    chdir: Chdir = None,
    progress: Progress = Style.AUTO,
    as_json: Json = False,
) -> None:
    """Merge; if OUT already has an unfinished run of the same recipe, go on with it."""
    from resumerge.ui.merging import Merging

    options = Options(
        state_dir,
        memory,
        threads,
        device,
        shard_size,
        seed,
        offline,
        restart,
        memory_wait,
        evict,
        mirror,
        mirror_then_delete or None,
        mirror_rate,
        mirror_wait,
        take_over,
        bring_back,
    )
    merging = Merging(
        options, lambda session: session.run(config, out), style=_style(progress, as_json)
    )
    raise typer.Exit(merging.here() if no_supervise else merging.supervised(stall_timeout))


@app.command()
def resume(
    run: Run = None,
    state_dir: StateDir = None,
    memory: Memory = None,
    threads: Threads = None,
    device: Device = "cpu",
    offline: Offline = False,
    restart: Restart = False,
    memory_wait: MemoryWait = MEMORY_WAIT,
    evict: Evict = False,
    output: Output = None,
    mirror: Mirror = None,
    mirror_then_delete: MirrorThenDelete = False,
    mirror_rate: MirrorRate = None,
    mirror_wait: MirrorWait = None,
    take_over: TakeOver = False,
    bring_back: BringBack = False,
    no_supervise: NoSupervise = False,
    stall_timeout: StallTimeout = STALL_SECONDS,
    chdir: Chdir = None,
    progress: Progress = Style.AUTO,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run, on this machine or from its mirror."""
    from resumerge.ui.merging import Merging

    options = Options(
        state_dir,
        memory,
        threads,
        device,
        None,
        None,
        offline,
        restart,
        memory_wait,
        evict,
        mirror,
        mirror_then_delete or None,
        mirror_rate,
        mirror_wait,
        take_over,
        bring_back,
        output,
    )
    merging = Merging(options, lambda session: session.resume(run), style=_style(progress, as_json))
    raise typer.Exit(merging.here() if no_supervise else merging.supervised(stall_timeout))


def _style(progress: Style, as_json: bool) -> Style:
    if not as_json:
        return progress
    if progress not in (Style.AUTO, Style.JSON):
        raise typer.BadParameter(f"--json goes with no --progress {progress.value}")
    return Style.JSON


@app.command()
def status(
    run: Run = None,
    state_dir: StateDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until the run ends.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as a page for a browser.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Progress, attempts, memory, events; all runs if none is named."""
    from resumerge.ledger.home import Home
    from resumerge.ui.status import status_json

    home = Home(state_dir)
    if html is not None:
        if watch or as_json:
            raise typer.BadParameter("--html goes with neither --watch nor --json")
        from resumerge.mirror.opening import names_mirror
        from resumerge.ui.report_file import write_report

        named = run if run is not None and names_mirror(run) else home.find(run).name
        write_report(status_json(home, named)["runs"][0], html)
        out_console.print(printable(html.absolute()), highlight=False, soft_wrap=True)
    elif watch:
        from resumerge.ui.watch import watch as follow
        from resumerge.ui.watch import watch_json

        watch_json(home, run, sys.stdout) if as_json else follow(home, run, out_console)
    elif as_json:
        _print_json(status_json(home, run))
    else:
        document = status_json(home, run)
        if document["runs"]:
            out_console.print(document, crop=False)  # a command to copy stays in one line
        else:
            text = f"No runs in {home.folder}"
            out_console.print(text, highlight=False, markup=False, soft_wrap=True)


def _print_json(document: dict[str, Any]) -> None:
    out_console.out(json.dumps(document, indent=2), highlight=False)


@app.command()
def plan(
    config: Config,
    out: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="Where it would go.")] = None,
    state_dir: StateDir = None,
    memory: Memory = None,
    threads: Threads = None,
    device: Device = "cpu",
    shard_size: ShardSize = None,
    seed: Seed = None,
    offline: Offline = False,
    evict: Evict = False,
    mirror: Mirror = None,
    progress: Progress = Style.AUTO,
    as_json: Json = False,
) -> None:
    """Check everything and estimate: nothing is written, only headers are read."""
    from resumerge.engine.planning import describe_plan
    from resumerge.ui.plan import PLANNING, show_plan

    options = Options(
        state_dir,
        memory,
        threads,
        device,
        shard_size,
        seed,
        offline,
        evict=evict,
        mirror=mirror,
    )
    as_json = _style(progress, as_json) is Style.JSON
    with told_meanwhile(None if progress is Style.NONE else err, PLANNING):
        document = describe_plan(config, out, options, progress.value)
    if as_json:
        _print_json(document)
    else:
        out_console.print(show_plan(document))
    if document["problems"]:
        if not as_json:
            for problem in document["problems"]:
                err.print(str(Problem(**problem)), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2)


@app.command()
def verify(run: Run = None, state_dir: StateDir = None, as_json: Json = False) -> None:
    """Re-read an output, finished or not, against the ledger's checksums."""
    from resumerge.engine.verify import verify_mirror, verify_run
    from resumerge.ledger.home import Home
    from resumerge.mirror.opening import names_mirror
    from resumerge.storage import Storage
    from resumerge.ui.resume_command import mirror_command, remake_command, resume_command

    with told_meanwhile(err, "reading the output again"):
        if run is not None and names_mirror(run):
            found = verify_mirror(run, Home(state_dir), Storage())
        else:
            found = verify_run(Home(state_dir).find(run), Storage())
    if as_json:
        _print_json(found.as_json())
    else:
        pending = f", {found.pending} not computed yet" if found.pending else ""
        verdict = "[green]intact[/green]" if found.intact else "[red]damaged[/red]"
        out_console.print(
            f"{escape(found.where)}: {verdict}, {found.units} tensors compared{pending}",
            markup=True,
            highlight=False,
            soft_wrap=True,
        )
        for name, what in found.damaged.items():
            out_console.print(f"  {name}: {what}", highlight=False, markup=False, soft_wrap=True)
    if not found.intact:
        if found.mirror is not None and found.remake:
            err.print(
                "It is mended by `resumerge resume` on the machine that made it. On any other, this"
                " computes everything again, with the recipe and a new output folder:",
                highlight=False,
                soft_wrap=True,
            )
            print(remake_command(found.mirror), file=sys.stderr)
            raise typer.Exit(75)
        if found.mirror is not None and not found.marked:
            err.print("What is damaged there is computed anew by:", highlight=False)
            print(mirror_command(found.mirror), file=sys.stderr)
            raise typer.Exit(75)
        if not found.marked:
            again = "another process works on the run, or its ledger is read-only: verify it again"
            err.print(f"Not noted in the ledger ({again})", highlight=False, soft_wrap=True)
        err.print("Damaged tensors are computed anew by:", highlight=False)
        print(resume_command(found.run, state_dir), file=sys.stderr)
        raise typer.Exit(75)


cache = typer.Typer(
    help="Whether cached sources are intact, and mending them.", no_args_is_help=True
)
app.add_typer(cache, name="cache")

Target = Annotated[
    str, typer.Argument(metavar="CONFIG|REPO", help="A recipe, or org/name[@revision].")
]


@cache.command("check")
def cache_check(
    target: Target, state_dir: StateDir = None, offline: Offline = False, as_json: Json = False
) -> None:
    """Read cached files again and compare them with their hashes; exits 75 if one is not right."""
    from resumerge.engine.cached import check_cache

    _show_cache(check_cache, target, state_dir, offline, as_json)


@cache.command("repair")
def cache_repair(target: Target, state_dir: StateDir = None, as_json: Json = False) -> None:
    """Check, and fetch the files that are damaged or missing, and no others."""
    from resumerge.engine.cached import repair_cache

    _show_cache(repair_cache, target, state_dir, False, as_json)


def _show_cache(
    work: Callable[..., Any], target: str, state_dir: Path | None, offline: bool, as_json: bool
) -> None:
    from resumerge.engine.options import Options
    from resumerge.ui.cache import show_cache
    from resumerge.ui.resume_command import repair_command

    with told_meanwhile(err, "reading"), err.status("reading") as status:
        found = work(
            target,
            Options(state_dir, offline=offline),
            lambda name: status.update(f"reading {name}"),
        )
    if as_json:
        _print_json(found.as_json())
    else:
        out_console.print(show_cache(found))
    if not found.intact:
        err.print("`resumerge run`, `resume` or this fetch what is not right:", highlight=False)
        print(repair_command(target, state_dir), file=sys.stderr)
        raise typer.Exit(75)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]")] = None, as_json: Json = False
) -> None:
    """The merge methods with their parameters and defaults."""
    from resumerge.ui.methods import methods_json, show_methods

    document = methods_json(name)
    if as_json:
        _print_json(document)
    else:
        out_console.print(show_methods(document))


@app.command()
def demo() -> None:
    """A demonstration on small models it makes: merge, kill, status, resume, verify, compare."""
    from resumerge.ui.demo import run_demo

    raise typer.Exit(run_demo(out_console))


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Merge model weights on machines that cannot be trusted."""
    if show:
        print(f"resumerge {resumerge.__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: errors that are expected become a message and the contract's exit code."""
    for stream in (sys.stdout, sys.stderr):
        escape_unknown_letters(stream)
    words, notes = without_mergekit_options(sys.argv[1:])
    for note in notes:
        text = f"[yellow]note:[/yellow] {escape(note)}"
        err.print(text, markup=True, highlight=False, soft_wrap=True)
    try:
        app(words)
    except ResumergeError as error:
        _end(error)
    except DISK_ERRORS as error:
        _end(out_of_order(error))
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            silence(sys.stdout)


def _end(error: ResumergeError) -> NoReturn:
    err.print(str(error), highlight=False, markup=False, soft_wrap=True)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
