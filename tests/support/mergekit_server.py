"""A process that has mergekit imported and forks a child for every program.

The interpreter that has mergekit runs it, and it imports nothing of this project. It reads jobs as
JSON lines from stdin, and writes the exit code of each to stdout. The imports of a job remain for
the next one.
"""

import importlib
import json
import os
import sys
import traceback

WARM = ("run_yaml", "multimerge", "merge_raw_pytorch")


def run(job):
    """Run a program in this process, as ``python -c`` does, and return its exit code."""
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    for number, path in ((1, job["stdout"]), (2, job["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.argv = ["-c", *job["words"]]
    try:
        exec(compile(job["program"], "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    for name in WARM:
        importlib.import_module(f"mergekit.scripts.{name}")
    for line in sys.stdin:
        job = json.loads(line)
        for name in job["imports"]:
            importlib.import_module(name)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = run(job)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
