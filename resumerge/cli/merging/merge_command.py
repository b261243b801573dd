"""The merge of a command, in this process or in worker processes, and its exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from click.exceptions import Exit

from resumerge.cli.merging.detach import detach
from resumerge.cli.parsing.arguments import json_style
from resumerge.engine.resources.allocation_errors import (
    check_address_space,
    is_out_of_memory,
    out_of_memory,
)
from resumerge.engine.resources.open_files import allow_many_open_files
from resumerge.engine.resources.resource_errors import DISK_ERRORS, as_resumable
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, Resumable, ResumergeError
from resumerge.ledger.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.supervisor import supervise
from resumerge.ui.progress.keepalive import PrintClock
from resumerge.ui.progress.styles import Style, console_of, reporter_of
from resumerge.ui.progress.supervision import Supervision
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.prose import say
from resumerge.ui.terminal.streams import lossy
from resumerge.ui.terminal.terminal import print_command_to_resume
from resumerge.ui.text.commands import (
    GONE,
    TO_RESUME,
    has_mirror,
    is_gone,
    repeat_command,
    resume_command,
    start_over_command,
)

if TYPE_CHECKING:
    from resumerge.engine.lifecycle.session import Session
    from resumerge.engine.reporter import Reporter
    from resumerge.supervisor import HeartbeatPipe, WorkerSpec
    from resumerge.ui.progress.styles import PrintedReporter

BUG = "This is a bug in resumerge: please report it. Committed work is kept."


def merge(
    options: Options,
    work: Callable[[Session], Any],
    *,
    progress: Style,
    as_json: bool,
    stall_seconds: float | None,
    in_background: bool,
    then: Callable[[], int] | None = None,
) -> NoReturn:
    """Merge, and end the process with the command's exit code.

    Args:
        options: the options that the command line set; `state_dir` locates the log files of a
            background process.
        work: calls `run`, `resume` or `reproduce` of a session.
        progress: the requested style, which `as_json` may replace (`json_style`).
        as_json: whether progress and errors are JSON Lines on stdout.
        stall_seconds: seconds without progress after which a worker is restarted; 0 means never.
            None merges in this process, without a supervisor.
        in_background: whether to merge in a new process without a terminal (`detach`).
        then: the last step of the command, after a complete merge; returns the exit code. If the
            command stops early, the same command is typed again, not `resume`.
    """
    style = json_style(progress, as_json)
    if in_background:
        detach(RunStore(options.state_dir), as_json=style is Style.JSON)
    sys.stdout = lossy(sys.stdout)
    check_address_space()
    allow_many_open_files()
    command = MergeCommand(options, work, style=style, repeats=then is not None)
    code = command.merge() if stall_seconds is None else command.supervise(stall_seconds)
    raise Exit(then() if code == 0 and then is not None else code)


class MergeCommand:
    """One merge. If it stops early, the last line on stderr is the command that resumes it.

    Args:
        work: calls `run`, `resume` or `reproduce` of a session.
        style: the style of progress; JSON Lines go to stdout.
        repeats: whether the merge is resumed by the same command, because the command has a step
            after the merge.
    """

    def __init__(
        self,
        options: Options,
        work: Callable[[Session], Any],
        *,
        style: Style,
        repeats: bool = False,
    ) -> None:
        self._options, self._work, self._style = options, work, style
        self._repeats = repeats
        self._err = console_of(style)
        self._as_json = style is Style.JSON
        self._clock = PrintClock()
        self._announced = False
        self._memory_limit: int | None = None
        self._session: Session | None = None
        self._shown: PrintedReporter | None = None

    def supervise(self, stall_seconds: float) -> int:
        """Merge in worker processes, and return the exit code.

        Only the worker imports the engine. This process stays small, so that the kernel does not
        kill it when memory runs out.
        """
        folder = RunStore(self._options.state_dir).folder
        clock = None if self._style is Style.NONE else self._clock
        supervision = Supervision(
            self._err, self._resume_command, as_json=self._as_json, clock=clock
        )
        return supervise(
            self._worker, supervision, lambda run: folder / run / LEDGER_FILE, stall_seconds
        )

    def _worker(self, pipe: HeartbeatPipe, spec: WorkerSpec) -> int:
        """Merge in a worker process: the first worker calls `work`, later ones resume its run."""
        self._memory_limit = spec.memory
        if spec.run is not None:
            run = spec.run
            self._options = replace(self._options, restart=False, take_over=False)
            if has_mirror(run, self._options):  # the option would name a new mirror
                self._options = replace(self._options, mirror=None)
            self._work = lambda session: session.resume(run)
            self._announced = True
        self._clock.on_print = pipe.printed
        return self.merge(pipe)

    def merge(self, pipe: HeartbeatPipe | None = None) -> int:
        """Merge in this process, and return the exit code.

        Args:
            pipe: the pipe to the supervisor; None without a supervisor.
        """
        stop = StopRequest(self._exit_at_once, final=True)
        try:
            with stop.listening():  # before the import of the engine, which takes long
                self._work(self._new_session(stop, pipe))
            return 0
        except (Interrupted, Resumable) as stop_error:
            return self._stopped(stop_error)
        except DISK_ERRORS as error:
            return self._stopped(as_resumable(error))
        except ResumergeError as error:
            self._close()
            say(self._err, str(error))
            if self._as_json:
                print_json_line(sys.stdout, **error.as_json())
            if pipe is not None:
                pipe.tell(refusal=str(error))
            return error.exit_code
        except Exception as error:
            if is_out_of_memory(error):
                return self._stopped(out_of_memory(error))
            self._close()
            traceback.print_exc()
            say(self._err, BUG)
            command = None if self._run is None else self._resume_command(self._run)
            if self._as_json:
                line = {"exit_code": 1, "message": f"{BUG} {error!r}"}
                print_json_line(sys.stdout, "error", **line, run=self._run, resume=command)
            if command is not None:
                print_command_to_resume(command, self._err)
            return 1
        finally:
            self._close()

    def _new_session(self, stop: StopRequest, pipe: HeartbeatPipe | None) -> Session:
        from resumerge.engine.lifecycle.session import Session

        self._shown = reporter_of(self._style, self._err, self._clock, announced=self._announced)
        reporter: Reporter = self._shown
        if pipe is not None:
            from resumerge.supervisor.heartbeat_reporter import HeartbeatReporter

            reporter = HeartbeatReporter(reporter, pipe)
        self._session = Session(self._options, reporter, stop=stop, memory_limit=self._memory_limit)
        return self._session

    @property
    def _run(self) -> str | None:
        return None if self._session is None else self._session.run_id

    def _resume_command(self, run: str | None) -> str:
        if run is None or self._repeats:
            return repeat_command()
        if is_gone(run, self._options.state_dir):
            return start_over_command()
        options = self._options
        if self._session is not None and self._session.has_had_lease:  # it may be another's now
            options = replace(options, take_over=False)
        return resume_command(run, options.state_dir, options)

    def _stopped(self, stopped: Interrupted | Resumable) -> int:
        self._close()
        say(self._err, str(stopped))
        was_removed = self._run is not None and is_gone(self._run, self._options.state_dir)
        command = self._resume_command(self._run)
        if self._as_json:
            error_document = stopped.as_json() | {"run": self._run, "resume": command}
            print_json_line(sys.stdout, **error_document)
        print_command_to_resume(command, self._err, GONE if was_removed else TO_RESUME)
        return stopped.exit_code

    def _exit_at_once(self, signum: int) -> None:
        """Print how to resume, at a second signal; the process exits after that.

        A signal handler must not write to buffered streams, so this writes by `os.write`.
        """
        stop_error, command = Interrupted(signum), self._resume_command(self._run)
        show_cursor = "\r\x1b[2K\x1b[?25h" if self._err.is_terminal else ""
        text = f"{show_cursor}Stopped at once. Committed work is kept.\n{TO_RESUME}\n{command}\n"
        with suppress(OSError):
            if self._as_json:
                error_document = stop_error.as_json() | {"run": self._run, "resume": command}
                os.write(1, json.dumps(error_document).encode() + b"\n")
        with suppress(OSError):
            os.write(2, text.encode())

    def _close(self) -> None:
        """Remove the progress bar from the terminal, and print no more progress."""
        if self._shown is not None:
            self._shown.close()
