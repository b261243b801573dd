"""A merge method for tests: a slow mean, whose workers have accidents at points of their task.

An accident is a file in the folder `ACCIDENTS`, named ``POINT-KIND-SHARD`` and anything more. The
first worker that comes to the point with that shard takes it: the file's new name begins with
``taken-`` and ends with the worker's process id. Points of a task: ``start``, ``middle``,
``publish``, ``renamed``, ``return``; in a bucket also ``sent``, in the midst of the upload, and
``uploaded``, before the record. Kinds: ``kill``, ``stop`` (SIGSTOP), ``raise``; ``meet`` waits
until all that are laid are taken.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from resumerge import kernels
from resumerge.engine.cluster import task
from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint
from resumerge.engine.cluster.exchange.folder import FolderEndpoint
from resumerge.methods import KernelMethod
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.s3 import S3Store

ACCIDENTS = os.environ.get("ACCIDENTS", "")
SLOWNESS = float(os.environ.get("SLOWNESS", "0"))
OTHERWISE = float(os.environ.get("OTHERWISE", "0"))
"""A number that this machine adds to each weight, which makes its results wrong."""

HOLD = int(os.environ.get("HOLD", "0"))
"""The number of block runs after which this process waits for a signal that asks it to stop."""

PART = int(os.environ.get("UPLOAD_PART", s3_uploads.PART))
"""The size in bytes of the parts in which a shard is uploaded."""


class Mean(KernelMethod):
    """``mean(x_i)``."""

    name = "mean_with_accidents"
    summary = "the mean, with accidents"
    parameters = ()
    fewest = 2
    version = 1

    def compute(self, tensor, inputs, run, statistics, out):
        comes_to("middle")
        time.sleep(SLOWNESS)
        computed.append(None)
        while HOLD and len(computed) > HOLD and not is_asked_to_stop():
            time.sleep(0.01)
        weight = 1 / len(inputs) + OTHERWISE
        kernels.weighted_sum(inputs, [weight] * len(inputs), out)


computed = []
"""A `None` for each run of blocks of this process."""


def is_asked_to_stop():
    """Return whether a signal has asked this process to stop."""
    handler = signal.getsignal(signal.SIGTERM)  # a method of the request to stop
    return getattr(getattr(handler, "__self__", None), "requested", False)


current = []
"""The shard of the task that this process works on."""


def comes_to(point: str) -> None:
    """Cause the accident that is laid at this point, unless another process has had it."""
    for path in sorted(Path(ACCIDENTS).glob(f"{point}-*")) if ACCIDENTS else ():
        if path.name.split("-")[2][:1] not in map(str, current):
            continue
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f"taken-{path.name}-{os.getpid()}"))
            kind = path.name.split("-")[1]
            if kind == "raise":
                raise ArithmeticError("an accident")
            if kind == "meet":
                while [*Path(ACCIDENTS).glob(f"{point}-meet-*")]:
                    time.sleep(0.02)
                return
            if kind == "stop":
                # A stopped group of processes that loses its parent is woken and killed by the
                # kernel. In its parent's group it stays stopped, as a machine does that hangs.
                os.setpgid(0, os.getpgid(os.getppid()))
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[kind])


run_task = task.run_task


def with_accidents(told, *given):
    current[:] = [told.shard]
    comes_to("start")
    outcome = run_task(told, *given)
    comes_to("return")
    return outcome


def stumbling(kind, name, before, after):
    """Make a method of a class come to a point before it and to another one after it."""
    method = getattr(kind, name)

    def stumbles(*given):
        comes_to(before)
        returned = method(*given)
        comes_to(after)
        return returned

    setattr(kind, name, stumbles)


def sending(create):
    def sent(self, name, path, moved):
        def told(nbytes):
            moved(nbytes)
            if nbytes:
                comes_to("sent")

        return create(self, name, path, told)

    return sent


if ACCIDENTS:
    task.run_task = with_accidents
    for endpoint in (FolderEndpoint, BucketEndpoint):
        stumbling(endpoint, "publish", "publish", "renamed")
    stumbling(BucketEndpoint, "_upload", "upload", "uploaded")
    S3Store.create = sending(S3Store.create)
    s3_uploads.PART = PART
