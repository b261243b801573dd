"""Promise: a cache that cannot be written to is reported in one way, whoever tried: the Hub's
library, a request to a bucket, or a download."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from resumerge.buckets import calls
from resumerge.errors import InputError, Resumable, ResumergeError
from resumerge.hub.calls import explain_hub_error
from resumerge.remote.cache_errors import usable_cache

FILE = "/cache/blobs/abc.incomplete"


def of_the_hub(error: OSError) -> ResumergeError | None:
    return explain_hub_error(error, "org/name", None)


def of_a_bucket(error: OSError) -> ResumergeError | None:
    return calls.explain_bucket_error(error, "s3://bucket/x", "s3://bucket/x/model.safetensors")


def of_a_download(error: OSError) -> ResumergeError | None:
    try:
        with usable_cache("org/name/model.safetensors", Path("/cache")):
            raise error
    except InputError as told:
        return told
    except OSError:
        return None


WAYS = [of_the_hub, of_a_bucket, of_a_download]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR])
def test_a_folder_that_refuses_is_told_with_its_name(number: int) -> None:
    told = [way(OSError(number, os.strerror(number), FILE)) for way in WAYS]
    problems = [error.problems[0] for error in told if isinstance(error, InputError)]
    assert len(problems) == len(WAYS)
    for problem in problems:
        assert problem.what == "The cache folder is not usable"
        assert problem.where.startswith(("org/name", "s3://bucket/x"))
        assert problem.found == f"{os.strerror(number)}: {FILE}"
    assert len({problem.fix for problem in problems}) == 1
    assert "HF_HOME" in problems[0].fix


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_can_be_resumed_from(
    way: Callable[[OSError], ResumergeError | None], number: int
) -> None:
    told = way(OSError(number, os.strerror(number), FILE))
    assert isinstance(told, Resumable)
    assert told.reason == "disk_full"
    assert "setting HF_HOME, then resume" in told.message


def test_a_network_that_fails_is_something_else() -> None:
    told = [way(ConnectionResetError(errno.ECONNRESET, "reset")) for way in WAYS]
    assert [getattr(error, "reason", None) for error in told] == ["network", "network", None]
