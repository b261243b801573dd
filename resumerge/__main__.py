"""The entry point of ``resumerge`` and ``python -m resumerge``."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command line, and exit with the command's exit code.

    Until the command is imported, Ctrl-C ends the process at once and without a message, because
    nothing has begun.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # a background process keeps ignoring SIGINT
        signal.signal(signal.SIGINT, lambda signum, frame: os._exit(INTERRUPTED))
    # Set this before NumPy is imported: the threads of its OpenBLAS would spin without work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from resumerge.cli.main import main as command

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
