"""Promise: a run that is mirrored to a bucket is there to the byte, whatever happens.

The mirror is audited after every request that may have changed it.
"""

from __future__ import annotations

from any_mirrored_run import test_a_server_that_fails_now_and_then, test_killed_at_requests
from loopback_clouds import Cloud
from loopback_s3 import Server, before
from mirrored_to_buckets import Merges, merges

__all__ = [
    "merges",
    "test_a_server_that_fails_now_and_then",
    "test_killed_at_requests",
]


def test_a_server_that_is_away_is_resumed_later(
    merges: Merges, s3: Server | Cloud, reference: dict[str, bytes]
) -> None:
    with before(s3.endpoint) as proxy:
        merge = merges.new(proxy.endpoint, mirror_wait=0.5)

        def away(method: str, path: str) -> str | None:
            return "503" if method == "PUT" and "model-00002" in path else None

        proxy.choose = away
        ended = merge.run()
        assert ended.code == 75, ended.stderr
        assert "HTTP 503" in ended.stderr
        assert merge.checked().consistent
        assert (
            merge.model().items()
            >= {
                name: data for name, data in reference.items() if name.endswith(".safetensors")
            }.items()
        )
        proxy.choose = lambda method, path: None
        merge.options["mirror_wait"] = 60
        ended = merge.resume()
        assert ended.code == 0, ended.stderr
        merge.assert_done(reference)
        assert {"mirror_failing"} <= set(merge.events())
