"""Processes of the program that begin with its modules imported, which saves a second each.

`WarmPopen` replaces `subprocess.Popen`: it requests a fork of a process that has imported the
program. The child is a real process: it has its own pid, signals, memory and files, and it ends as
Python ends. But it is not newly started: its imports, and the memory that they take, are not those
of a user. Tests of these have the marker ``cold_start``, and so do tests that change a module
before another one imports from it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "resumerge"
SCRIPT = str(Path(sys.executable).with_name(PROGRAM))
"""The command that pip has installed for users."""

WARM = (
    "numpy.random",
    "rich._emoji_codes",
    "boto3.session",
    "botocore.httpsession",
    "httpx2",
    "resumerge.sources.local",
    "resumerge.supervisor.supervisor",
    "resumerge.ui.progress.json_reporter",
    "resumerge.engine.lifecycle.session",
    "resumerge.engine.resources.allocator",
    "resumerge.engine.execute.committer",
    "resumerge.engine.evaluation.evaluator",
    "resumerge.engine.recovery.recovery",
)
"""The modules that a merge imports besides the commands, if they are installed."""

READ_AT_START = (
    *("PYTHON", "LC_", "LANG", "TZ", "OMP_", "OPENBLAS_", "LD_"),
    *("TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
    *("RESUMERGE_KERNELS", "RESUMERGE_POSIX_ONLY"),
)
"""The first parts of names of variables that Python's start or a module's import reads."""

SERVERS = 4
"""The largest number of processes that fork, each with another environment."""

USUAL: dict[str, Any] = {
    "executable": None,
    "preexec_fn": None,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "process_group": None,
    "user": None,
    "group": None,
    "extra_groups": None,
    "umask": -1,
}
"""Arguments of `Popen` with which a process may be forked as well as started."""

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that a test may have its processes ignore."""


class ForkServer:
    """A process that has imported the program, and forks. It ends with the process that made it.

    Args:
        environment: the environment with which it starts.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = START(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
            )

    def fork(self, files: list[int], **job: Any) -> tuple[int, socket.socket]:
        """Fork a process; return its pid, and a socket that gets its wait status when it ends.

        Args:
            files: the descriptors that become its stdin, stdout and stderr.
            job: the values that `become` and `run` use.
        """
        ended, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = json.dumps(job).encode()
            socket.send_fds(self._channel, [message], [*files, theirs.fileno()])
        return int(ended.recv(100)), ended

    def retire(self) -> None:
        """Have the server end when all of its children have ended."""
        self._channel.close()

    def close(self) -> None:
        """End the server."""
        self.retire()
        self._process.kill()
        self._process.wait()


class ForkServers:
    """The fork servers, by the variables that they read when they started.

    A server is made when an environment is requested for the second time. If there are too many,
    the least recently used one ends, but not before its children.
    """

    def __init__(self) -> None:
        self._servers: dict[frozenset[tuple[str, str]], ForkServer] = {}  # the newest use last
        self._asked: set[frozenset[tuple[str, str]]] = set()
        self._retired: list[ForkServer] = []

    def for_environment(self, environment: Mapping[str, str]) -> ForkServer | None:
        """Return a server that started as with this environment; None: the process has to start."""
        read = frozenset(_read_at_start(environment).items())
        if _has_another_copy(environment) or read not in self._asked:
            self._asked.add(read)
            return None
        server = self._servers.pop(read, None) or ForkServer(
            {k: v for k, v in os.environ.items() if not k.startswith(READ_AT_START)} | dict(read)
        )
        self._servers[read] = server
        if len(self._servers) > SERVERS:
            self._retired.append(self._servers.pop(next(iter(self._servers))))
            self._retired[-1].retire()
        return server

    def close(self) -> None:
        """End all servers."""
        for server in (*self._servers.values(), *self._retired):
            server.close()
        self._servers.clear()


class WarmPopen(subprocess.Popen):  # type: ignore[type-arg]
    """A `Popen` that forks the program if that makes no difference, and else starts it."""

    is_cold = False
    """Whether every process is newly started, as the current test requires."""

    servers = ForkServers()
    _ended: socket.socket | None = None  # None: a child of this process
    _is_usual = False

    def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
        usual = all(options.get(name, value) == value for name, value in USUAL.items())
        self._is_usual = usual and not rest and _is_the_program(args)
        super().__init__(args, *rest, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        names = START._execute_child.__code__.co_varnames[2:]  # type: ignore[attr-defined]
        given = dict(zip(names, rest))
        environment = dict(os.environ if given["env"] is None else given["env"])
        pipes = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        is_shown = any(map(os.isatty, files))  # consoles look at theirs when they are imported
        can_fork = self._is_usual and not self.is_cold and not is_shown
        server = self.servers.for_environment(environment) if can_fork else None
        if server is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        self.pid, self._ended = server.fork(
            files,
            words=[_in_bytes(word) for word in args],
            cwd=_in_bytes(Path.cwd() if given["cwd"] is None else given["cwd"]),
            environment={_in_bytes(k): _in_bytes(v) for k, v in environment.items()},
            ignored=[n for n in IGNORED if signal.getsignal(n) is signal.SIG_IGN],
            is_session=bool(given["start_new_session"]),
        )
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._ended is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self._ended.fileno() == -1:  # it was collected, together with this
                self.returncode = sys.maxsize if self.returncode is None else self.returncode
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        if wait_flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        with self._ended:
            return self.pid, int(self._ended.recv(100))


START = subprocess.Popen
"""The original `Popen`, which starts processes."""


def _is_the_program(args: Any) -> bool:
    words = [os.fspath(word) for word in args] if isinstance(args, (list, tuple)) else []
    is_code = words[1:2] == ["-c"] and PROGRAM in words[2]
    is_python = words[:1] == [sys.executable] and (is_code or words[1:3] == ["-m", PROGRAM])
    return is_python or words[:1] == [SCRIPT]


def _has_another_copy(environment: Mapping[str, str]) -> bool:
    folders = [Path(f) for f in environment.get("PYTHONPATH", "").split(os.pathsep) if f]
    return any((f / PROGRAM).is_dir() and f.resolve() != ROOT for f in folders)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    found = {k: v for k, v in environment.items() if k.startswith(READ_AT_START)}
    found.pop("PYTHONPATH", None)  # which `become` reads
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Have `subprocess` fork the program."""
    config.addinivalue_line("markers", "cold_start: each of its processes is newly started")
    subprocess.Popen = WarmPopen  # type: ignore[misc]


def pytest_unconfigure() -> None:
    """End the processes that fork."""
    WarmPopen.servers.close()
    subprocess.Popen = START  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Newly start every process of a test with the marker, also those of its fixtures."""
    WarmPopen.is_cold = item.get_closest_marker("cold_start") is not None
    return (yield)


def serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for every message; return, in each child, the job and its files.

    The process ends when the other end of the channel is closed, and no child is left.
    """
    ended: dict[int, socket.socket] = {}
    asks = [channel]
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while asks or ended:
        ready = select.select([*asks, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 1000)
            for pid, status in _ended_children():
                with ended.pop(pid) as told:
                    told.send(str(status).encode())
        if channel in ready:
            message, files, _, _ = socket.recv_fds(channel, 1 << 20, 4)
            if not message:
                asks.clear()
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                job = json.loads(message)
                job["words"] = [_from_bytes(word) for word in job["words"]]
                job["cwd"] = _from_bytes(job["cwd"])
                job["environment"] = {
                    _from_bytes(k): _from_bytes(v) for k, v in job["environment"].items()
                }
                return job, files
            ended[pid] = socket.socket(fileno=files.pop())
            ended[pid].send(str(pid).encode())
            for file in files:
                os.close(file)
    os._exit(0)


def _in_bytes(text: str | os.PathLike[str]) -> str:
    """Return the bytes of a text as text: the other process may have another encoding."""
    return os.fsencode(text).decode("latin-1")


def _from_bytes(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def _ended_children() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def become(job: dict[str, Any], files: list[int]) -> None:
    """Make this process what a newly started one would be: files, folder, environment, signals."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if job["is_session"]:
        os.setsid()
    for number in job["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    path = os.environ.get("PYTHONPATH", "")
    sys.path[:1] = [_own_folder(job["words"], job["cwd"]), *filter(None, path.split(":"))]
    random.seed()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        usual = getattr(sys, name)
        file = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            encoding=usual.encoding,
            errors=usual.errors,
            buffering=1 if number == 2 or os.isatty(number) else -1,
            closefd=False,
        )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _own_folder(words: list[str], cwd: str) -> str:
    """Return the folder that Python puts before all others from which it imports."""
    if words[0] == SCRIPT:
        return str(Path(SCRIPT).parent)
    return "" if words[1] == "-c" else cwd


def run(words: list[str]) -> None:
    """Run the program or the code that the words of a command line name."""
    if words[0] != SCRIPT and words[1] == "-c":
        sys.argv = words[1:2] + words[3:]
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[2], "<string>", "exec"), module.__dict__)
        return
    main = importlib.import_module("resumerge.__main__")
    sys.argv = words
    if words[0] != SCRIPT:
        sys.argv = [str(main.__file__), *words[3:]]
        sys.modules["__main__"] = main  # by which usage says what was typed
    main.main()


def _main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program does
    cli = importlib.import_module("resumerge.cli")
    for name in (
        *(name for name in WARM if find_spec(name.partition(".")[0])),
        *(found.name for found in pkgutil.walk_packages(cli.__path__, "resumerge.cli.")),
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    job, files = serve(socket.socket(fileno=int(sys.argv[1])))
    become(job, files)
    run(job["words"])


if __name__ == "__main__":
    _main()
