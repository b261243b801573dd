"""Promise: the Hub and buckets agree on which statuses of HTTP are worth another request."""

from __future__ import annotations

import pytest

from resumerge.buckets.errors import Advice, refusal
from resumerge.errors import StoreError
from resumerge.retry import is_temporary_status

TEMPORARY = [408, 429, 500, 502, 503, 504, 520, 530]
FOR_GOOD = [400, 401, 403, 404, 416, 501, 505]


def test_which_statuses_may_be_others_the_next_time() -> None:
    assert [status for status in TEMPORARY + FOR_GOOD if is_temporary_status(status)] == TEMPORARY


@pytest.mark.parametrize("status", TEMPORARY)
def test_a_bucket_that_fails_for_now(status: int) -> None:
    error = refusal(Advice("log in", "look"), "box", status, retry_after="7")
    assert type(error) is StoreError
    assert (error.denied, error.retry_after) == (False, 7.0)


@pytest.mark.parametrize("status", [501, 505])
def test_a_bucket_whose_server_lacks_the_request(status: int) -> None:
    error = refusal(Advice("log in", "look"), "box", status, retry_after="7")
    assert isinstance(error, StoreError) and error.denied and f"HTTP {status}" in str(error)
