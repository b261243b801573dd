"""An output in a bucket: a working folder on this machine, and a mirror in the bucket.

A run's ledger has no column for this. The output is in a bucket if `RunStore.output_in` derives the
working folder's path from the mirror's address.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from resumerge.buckets.address import is_bucket, split_address
from resumerge.errors import InputError, Problem, refuse
from resumerge.ledger.run_store import RunStore, is_output_in
from resumerge.local_path import OUTPUT, address_in, local_path
from resumerge.options import Options
from resumerge.output_path import ONE_FILE


def read_output(value: object) -> Path | str:
    """Return an output that a user named: a path on this machine, or an address in a bucket.

    Raises:
        InputError: the value is neither a path nor the address of a bucket.
    """
    address = address_in(value)
    if address is None or not is_bucket(address):
        return local_path(value, OUTPUT)
    bucket, prefix = split_address(address)
    return f"{address.partition('://')[0]}://{bucket}" + (f"/{prefix}" if prefix else "")


def working_folder_of(out: Path | str, options: Options) -> tuple[Path, Options]:
    """Return the local folder for a run with this output, and the run's options.

    Args:
        out: the output as `read_output` returned it: a path, or an address in a bucket.
        options: the options of the command that names the output; they are not changed in place.

    Raises:
        InputError: the options contradict an output in a bucket.
    """
    if isinstance(out, Path):
        return out, options
    problems = []
    contradicting_options = {
        f"--mirror {options.mirror}": options.mirror not in (None, out, f"{out}/"),
        "--bring-back": options.bring_back,
        "--no-mirror-then-delete": options.mirror_then_delete is False,
        "--intermediate-dir": options.intermediate_dir is not None,
    }
    if given_options := [option for option, is_given in contradicting_options.items() if is_given]:
        problems.append(
            Problem(
                "These options do not go with an output in a bucket",
                where=out,
                expected="the model there, and nothing of it on this machine",
                found=" and ".join(given_options),
                fix=f"leave them out; or name a folder, with --mirror {out}",
            )
        )
    if out.endswith(ONE_FILE):
        problems.append(
            Problem(
                "A single-file output cannot be in a bucket",
                where=out,
                expected="the prefix of a model's files",
                fix=f"write {out.rpartition('.')[0]}, or a path on this machine, with --mirror",
            )
        )
    if problems:
        raise InputError(problems)
    folder = RunStore(options.state_dir).output_in(out)
    return folder, replace(options, mirror=out, mirror_then_delete=True)


def check_stays_in_bucket(options: Options, out: Path, mirror: str | None, url: str | None) -> None:
    """Check that the command leaves the output of a run in its bucket.

    Args:
        options: the command's own options, before any are inherited from the run.
        out: the run's output on this machine; its working folder, if the output is in a bucket.
        mirror: the address of the run's mirror before this command; None without a mirror.
        url: the address of the mirror for this command; None without a mirror.

    Raises:
        InputError: the command names another mirror, or asks for files of the output on this
            machine.
    """
    if not is_output_in(out, mirror):
        return
    assert mirror is not None
    if url != mirror:
        raise refuse(
            "The output of this run is in a bucket, and stays there",
            where=mirror,
            found=f"--mirror {url}",
            fix="leave --mirror out",
        )
    if options.mirror_then_delete is False:
        raise refuse(
            "The output of this run is in a bucket, and nothing of it stays here",
            where=mirror,
            found="--no-mirror-then-delete",
            fix="leave it out",
        )
    if options.bring_back:
        raise refuse(
            "The output of this run is in a bucket: it has no folder here",
            where=mirror,
            found="--bring-back",
            fix=f"finish it, then copy it: `resumerge resume {mirror} --bring-back --output DIR`",
        )
