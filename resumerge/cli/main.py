"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from rich.markup import escape

import resumerge
import resumerge.cli.arguments as args
from resumerge.cli.cache_commands import cache
from resumerge.cli.commands import Argument, BadParameter, Commands, Context, Exit, Option
from resumerge.cli.mergekit_options import without_mergekit_options
from resumerge.engine.resources.disk_errors import DISK_ERRORS, out_of_order
from resumerge.errors import Problem, ResumergeError
from resumerge.options import MEMORY_WAIT, STALL_SECONDS, Options
from resumerge.ui.progress.keepalive import told_meanwhile
from resumerge.ui.progress.styles import Style
from resumerge.ui.terminal.console import escape_unknown_letters, silence
from resumerge.ui.terminal.terminal import err, print_document, print_text, stop
from resumerge.ui.terminal.terminal import out as out_console

if TYPE_CHECKING:
    from resumerge.engine.lifecycle.session import Session

app = Commands("resumerge", "Merge model weights on machines that cannot be trusted.")


@app.function()
def run(
    context: Context,
    config: args.Config,
    out: args.Out,
    state_dir: args.StateDir = None,
    memory: args.Memory = None,
    threads: args.Threads = None,
    device: args.Device = "cpu",
    shard_size: args.ShardSize = None,
    seed: args.Seed = None,
    offline: args.Offline = False,
    restart: args.Restart = False,
    memory_wait: args.MemoryWait = MEMORY_WAIT,
    evict: args.Evict = False,
    mirror: args.Mirror = None,
    mirror_then_delete: args.MirrorThenDelete = None,
    mirror_rate: args.MirrorRate = None,
    mirror_wait: args.MirrorWait = None,
    take_over: args.TakeOver = False,
    bring_back: args.BringBack = False,
    no_supervise: args.NoSupervise = False,
    stall_timeout: args.StallTimeout = STALL_SECONDS,
    chdir: args.Chdir = None,
    progress: args.Progress = Style.AUTO,
    as_json: args.Json = False,
) -> None:
    """Merge; if OUT already has an unfinished run of the same recipe, go on with it."""
    _merge(context, lambda session: session.run(config, out))


@app.function()
def resume(
    context: Context,
    run: args.Run = None,
    state_dir: args.StateDir = None,
    memory: args.Memory = None,
    threads: args.Threads = None,
    device: args.Device = "cpu",
    offline: args.Offline = False,
    restart: args.Restart = False,
    memory_wait: args.MemoryWait = MEMORY_WAIT,
    evict: args.Evict = False,
    output: args.Output = None,
    mirror: args.Mirror = None,
    mirror_then_delete: args.MirrorThenDelete = None,
    mirror_rate: args.MirrorRate = None,
    mirror_wait: args.MirrorWait = None,
    take_over: args.TakeOver = False,
    bring_back: args.BringBack = False,
    no_supervise: args.NoSupervise = False,
    stall_timeout: args.StallTimeout = STALL_SECONDS,
    chdir: args.Chdir = None,
    progress: args.Progress = Style.AUTO,
    as_json: args.Json = False,
) -> None:
    """Go on with an interrupted run, on this machine or from its mirror."""
    _merge(context, lambda session: session.resume(run))


def _merge(context: Context, work: Callable[[Session], Any]) -> NoReturn:
    """What `run` and `resume` have in common, with the arguments that were parsed."""
    from resumerge.cli.merge_command import Merging

    given = context.params
    merging = Merging(_options(context), work, style=_style(given["progress"], given["as_json"]))
    if given["no_supervise"]:
        raise Exit(merging.here())
    raise Exit(merging.supervised(given["stall_timeout"]))


def _options(context: Context) -> Options:
    """Those of a command's arguments that are options of a merge, under the same names."""
    names = {field.name for field in fields(Options)}
    return Options(**{name: context.params[name] for name in names & context.params.keys()})


def _style(progress: Style, as_json: bool) -> Style:
    if not as_json:
        return progress
    if progress not in (Style.AUTO, Style.JSON):
        raise BadParameter(f"--json goes with no --progress {progress.value}")
    return Style.JSON


@app.function()
def status(
    run: args.Run = None,
    state_dir: args.StateDir = None,
    watch: Annotated[bool, Option("--watch", help="Refresh until the run ends.")] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write it as a page for a browser.")
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Progress, attempts, memory, events; all runs if none is named."""
    from resumerge.ledger.run_store import RunStore
    from resumerge.report.status import status_json

    home = RunStore(state_dir)
    if html is not None:
        if watch or as_json:
            raise BadParameter("--html goes with neither --watch nor --json")
        from resumerge.mirror.stores.registry import is_mirror_url
        from resumerge.ui.html.report_file import write_report

        named = run if run is not None and is_mirror_url(run) else home.find(run).name
        write_report(status_json(home, named)["runs"][0], html)
        print_text(str(html.absolute()))
    elif watch:
        from resumerge.ui.terminal.watch import watch as follow
        from resumerge.ui.terminal.watch import watch_json

        watch_json(home, run, sys.stdout) if as_json else follow(home, run, out_console)
    elif as_json:
        print_document(status_json(home, run))
    else:
        document = status_json(home, run)
        if document["runs"]:
            out_console.print(document, crop=False)  # a command to copy stays in one line
        else:
            print_text(f"No runs in {home.folder}")


@app.function()
def plan(
    context: Context,
    config: args.Config,
    out: Annotated[Path | None, Argument(metavar="[OUT]", help="Where it would go.")] = None,
    state_dir: args.StateDir = None,
    memory: args.Memory = None,
    threads: args.Threads = None,
    device: args.Device = "cpu",
    shard_size: args.ShardSize = None,
    seed: args.Seed = None,
    offline: args.Offline = False,
    evict: args.Evict = False,
    mirror: args.Mirror = None,
    progress: args.Progress = Style.AUTO,
    as_json: args.Json = False,
) -> None:
    """Check everything and estimate: nothing is written, only headers are read."""
    from resumerge.engine.reports.plan_report import describe_plan
    from resumerge.ui.terminal.plan import PLANNING, show_plan

    as_json = _style(progress, as_json) is Style.JSON
    with told_meanwhile(None if progress is Style.NONE else err, PLANNING):
        document = describe_plan(config, out, _options(context), progress.value)
    if as_json:
        print_document(document)
    else:
        out_console.print(show_plan(document))
    if document["problems"]:
        if not as_json:
            for problem in document["problems"]:
                print_text(str(Problem(**problem)), err)
        raise Exit(2)


@app.function()
def verify(
    run: args.Run = None, state_dir: args.StateDir = None, as_json: args.Json = False
) -> None:
    """Re-read an output, finished or not, against the ledger's checksums."""
    from resumerge.engine.recovery.verify import verify_mirror, verify_run
    from resumerge.ledger.run_store import RunStore
    from resumerge.mirror.stores.registry import is_mirror_url
    from resumerge.storage import Storage
    from resumerge.ui.terminal.verified import mending, show_verification

    with told_meanwhile(err, "reading the output again"):
        if run is not None and is_mirror_url(run):
            found = verify_mirror(run, RunStore(state_dir), Storage())
        else:
            found = verify_run(RunStore(state_dir).find(run), Storage())
    if as_json:
        print_document(found.as_json())
    else:
        out_console.print(show_verification(found), soft_wrap=True)
    if not found.intact:
        lines, command = mending(found, state_dir)
        stop(lines, command)


app.add_command(cache)


@app.function()
def methods(
    name: Annotated[str | None, Argument(metavar="[METHOD]")] = None,
    as_json: args.Json = False,
) -> None:
    """The merge methods with their parameters and defaults."""
    from resumerge.ui.terminal.methods import methods_json, show_methods

    document = methods_json(name)
    if as_json:
        print_document(document)
    else:
        out_console.print(show_methods(document))


@app.function()
def demo() -> None:
    """A demonstration on small models it makes: merge, kill, status, resume, verify, compare."""
    from resumerge.cli.demo import run_demo

    raise Exit(run_demo(out_console))


@app.first()
def version(
    show: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    """Merge model weights on machines that cannot be trusted."""
    if show:
        print(f"resumerge {resumerge.__version__}")
        raise Exit


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
    print_text(str(error), err)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
