"""Addresses of repos on the Hub."""

from __future__ import annotations

from resumerge.errors import refuse

SCHEME = "hf"


def repo_of(url: str) -> str:
    """Return the repo in an address: ``org/name`` of ``hf://org/name``.

    Raises:
        InputError: the text is not the name of a model's repo.
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
    elif "/" not in repo:
        fix = f"name its account, too: {SCHEME}://ACCOUNT/{repo}"
    raise refuse(
        "This is not the name of a model repo on the Hub",
        where=url,
        expected="hf://org/name",
        found=url,
        fix=fix,
    )
