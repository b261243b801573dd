"""Addresses of repos on the Hub, and names of files in them."""

from __future__ import annotations

import re

from resumerge.errors import refuse

SCHEME = "hf"

_ODD = re.compile(r"[\0-\x1f\x7f\\]")


def repo_of(url: str) -> str:
    """The repo in an address: ``org/name`` of ``hf://org/name``.

    Raises:
        InputError: it is not the name of a model's repo.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repo = url.removeprefix(f"{SCHEME}://").removesuffix("/")
    try:
        validate_repo_id(repo)
        if url.startswith(f"{SCHEME}://") and repo.count("/") == 1:
            return repo
    except HFValidationError:
        pass
    fix = "check the spelling"
    if "@" in repo:
        fix = "remove @ and what follows: a mirror is always written to the main branch"
    elif repo.split("/")[0] == "buckets":
        fix = "a storage bucket is s3://NAME/prefix, with AWS_ENDPOINT_URL=https://s3.hf.co/ORG"
    elif repo.split("/")[0] in ("models", "datasets", "spaces"):
        fix = "name a model repo, not a dataset or a space: hf://org/name"
    raise refuse(
        "This is not the name of a model repo on the Hub",
        where=url,
        expected="hf://org/name",
        found=url,
        fix=fix,
    )


def checked(name: str) -> str:
    """The name of a file in a mirror, unchanged.

    Raises:
        InputError: as a path, it leads out of a folder.
    """
    parts = name.split("/")
    if not all(parts) or {".", "..", ".git"} & set(parts) or _ODD.search(name):
        raise refuse(
            "The name of a file points outside of the mirror",
            found=repr(name[:200]),
            fix="do not use this mirror: somebody has tampered with it",
        )
    return name
