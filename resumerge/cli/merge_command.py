"""`run` and `resume` as commands: in this process or in supervised workers, and how they end."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from click.exceptions import Exit

from resumerge.cli.arguments import json_style
from resumerge.engine.resources.disk_errors import DISK_ERRORS, out_of_order
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, Resumable, ResumergeError
from resumerge.options import Options
from resumerge.report.resume_command import has_mirror, repeat_command, resume_command
from resumerge.ui.progress.keepalive import LastSaid
from resumerge.ui.progress.styles import Style, console_of, reporter_of
from resumerge.ui.terminal.console import print_json_line

if TYPE_CHECKING:
    from resumerge.engine.execute.reporter import Reporter
    from resumerge.engine.lifecycle.session import Session
    from resumerge.supervisor import HeartbeatPipe, WorkerSpec
    from resumerge.ui.progress.styles import PrintedReporter


def merge(
    options: Options,
    work: Callable[[Session], Any],
    *,
    progress: Style,
    as_json: bool,
    stall_seconds: float | None,
) -> NoReturn:
    """Run a merge and end the command.

    Args:
        work: what the command asks of a session.
        stall_seconds: see `Merging.supervised`; None for no supervisor.
    """
    merging = Merging(options, work, style=json_style(progress, as_json))
    code = merging.here() if stall_seconds is None else merging.supervised(stall_seconds)
    raise Exit(code)


class Merging:
    """One command. Where it stops short, the last line on stderr says how to go on.

    Args:
        work: what the command asks of a session.
        style: how progress is shown; JSON Lines go to stdout, for programs.
    """

    def __init__(
        self,
        options: Options,
        work: Callable[[Session], Any],
        *,
        style: Style,
    ) -> None:
        self._options, self._work, self._style = options, work, style
        self._err = console_of(style)
        self._as_json = style is Style.JSON
        self._said = LastSaid()
        self._session: Session | None = None
        self._shown: PrintedReporter | None = None

    def supervised(self, stall_seconds: float) -> int:
        """In worker processes; the exit code. This process stays small."""
        from resumerge.ledger.ledger import LEDGER_FILE
        from resumerge.ledger.run_store import RunStore
        from resumerge.supervisor import supervise
        from resumerge.ui.progress.supervision import Supervision

        folder = RunStore(self._options.state_dir).folder
        said = None if self._style is Style.NONE else self._said
        teller = Supervision(self._err, self._command, as_json=self._as_json, said=said)
        return supervise(self._worker, teller, lambda r: folder / r / LEDGER_FILE, stall_seconds)

    def _worker(self, link: HeartbeatPipe, orders: WorkerSpec) -> int:
        """In a worker: what the command line says, or what is to be resumed."""
        if orders.memory is not None:
            self._options = replace(self._options, memory=orders.memory)
        if orders.run is not None:
            run = orders.run
            self._options = replace(self._options, restart=False, take_over=False)
            if has_mirror(run, self._options):  # named again, it might be a new one
                self._options = replace(self._options, mirror=None)
            self._work = lambda session: session.resume(run)
        return self.here(link)

    def here(self, link: HeartbeatPipe | None = None) -> int:
        """In this process; the exit code.

        Args:
            link: to the supervisor, if this is a worker.
        """
        stop = StopRequest(self._leave_at_once)
        try:
            with stop.listening():  # before what takes long to import
                self._work(self._new_session(stop, link))
            return 0
        except (Interrupted, Resumable) as stopped:
            return self._stopped(stopped)
        except DISK_ERRORS as error:
            return self._stopped(out_of_order(error))
        except ResumergeError as error:
            self._close()
            self._say(str(error))
            if link is not None:
                link.tell(refusal=str(error))
            return error.exit_code
        except Exception:
            self._close()
            traceback.print_exc()
            self._say("This is a bug in resumerge; what is committed is kept.")
            if self._run is not None:
                self._say(self._command(self._run))
            return 1
        finally:
            self._close()

    def _new_session(self, stop: StopRequest, link: HeartbeatPipe | None) -> Session:
        from resumerge.engine.lifecycle.session import Session

        self._shown = reporter_of(self._style, self._err, self._said)
        reporter: Reporter = self._shown
        if link is not None:
            from resumerge.supervisor.heartbeat_reporter import HeartbeatReporter

            reporter = HeartbeatReporter(reporter, link)
        self._session = Session(self._options, reporter, stop=stop)
        return self._session

    # How it ends

    @property
    def _run(self) -> str | None:
        return None if self._session is None else self._session.run_id

    def _command(self, run: str | None) -> str:
        if run is None:
            return repeat_command()
        return resume_command(run, self._options.state_dir, self._options)

    def _stopped(self, stopped: Interrupted | Resumable) -> int:
        self._close()
        self._say(str(stopped))
        command = self._command(self._run)
        if self._as_json:
            print_json_line(sys.stdout, **_last_line(stopped, self._run, command))
        self._say(command)
        return stopped.exit_code

    def _leave_at_once(self, signum: int) -> None:
        """A second signal: in a handler, where only writing past all buffers is safe."""
        stopped, command = Interrupted(signum), self._command(self._run)
        if self._as_json:
            os.write(1, json.dumps(_last_line(stopped, self._run, command)).encode() + b"\n")
        show_cursor = "\r\x1b[2K\x1b[?25h" if self._err.is_terminal else ""
        told = f"{show_cursor}Left at once; what is committed is kept\n{command}\n"
        os.write(2, told.encode())

    def _say(self, text: str) -> None:
        self._err.print(text, highlight=False, soft_wrap=True)

    def _close(self) -> None:
        """Take the progress bar off the terminal."""
        if self._shown is not None:
            self._shown.close()


def _last_line(stopped: Interrupted | Resumable, run: str | None, command: str) -> dict[str, Any]:
    """The last of the JSON Lines of a run that stops short."""
    if isinstance(stopped, Interrupted):
        facts: dict[str, Any] = {"kind": "interrupted", "signal": stopped.name}
    else:
        facts = {"kind": "stopped", "reason": stopped.reason, "message": str(stopped)}
    return {**facts, "run": run, "resume": command, "exit_code": stopped.exit_code}
