"""Names of tests that stay the same when a folder is renamed."""

from __future__ import annotations

from pathlib import PurePosixPath


def function_of(node_id: str) -> str:
    """Return the name of a test function: its file's name without folders, and no parameters.

    Two files of tests never have the same name, since pytest imports them as modules.

    Args:
        node_id: the test's name as pytest prints it, such as `tests/ledger/test_x.py::test_y[3]`.
    """
    path, _, name = node_id.partition("::")
    return f"{PurePosixPath(path).name}::{name.partition('[')[0]}"


def file_of(name: str) -> str:
    """Return the name of the file that a function, or a case of one, is in."""
    return PurePosixPath(name.partition("::")[0]).name
