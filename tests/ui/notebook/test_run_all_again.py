"""Whatever happens, *Run all* goes on, and the model is the same, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

from notebook_kernels import MERGES, Hands, cell_outputs, cells, html_of, text_of

MOST = 1_200_000
"""Bytes that the Hub sends, of models of 1.5 MB together: enough for most units, not for all."""


def tile(html: str, name: str) -> str:
    """Return the value below a name."""
    return re.search(f"<dt>{name}</dt><dd><b>(.*?)</b>", html)[1]  # type: ignore[index]


def test_from_start_to_end_and_again(hands: Hands) -> None:
    first = hands.run_all()
    whole = hands.model()
    assert "config.json" in whole
    assert "No token" in text_of(first, "login")
    assert "can run" in html_of(first, "plan")[0]
    (live,), (status,) = html_of(first, "run"), html_of(first, "status")
    assert "Done in" in live
    assert "Over time" in status
    for name in ("committed", "speed", "peak memory"):
        assert tile(live, name) == tile(status, name)
    assert tile(live, "took") in status
    assert "intact" in html_of(first, "verify")[0]
    assert text_of(first, "try").startswith("The capital of France is ")
    again = hands.run_all(HF_TOKEN="hf_a_secret_of_mine")
    assert hands.model() == whole
    assert hands.attempts() == 1, "nothing was left to do"
    assert "Already done: " in html_of(again, "run")[0]
    assert "A token was found in the environment" in text_of(again, "login")
    assert "a_secret_of_mine" not in str(again)


def test_the_kernel_is_killed_while_it_merges(hands: Hands) -> None:
    hands.hub.allowance.give(MOST)
    hands.die_in_run_cell()
    done = hands.committed()
    hands.hub.allowance.give(None)
    executed = hands.run_all(notebook=cells(*MERGES))
    assert hands.attempts() == 2
    assert "Resuming" in html_of(executed, "run-4")[0]
    assert hands.computed_last() <= hands.total() - done
    assert hands.model() == hands.undisturbed()


def test_the_machine_is_lost_and_only_the_mirror_is_left(hands: Hands, tmp_path: Path) -> None:
    mirror = tmp_path / "far"
    env = {"RESUMERGE_MIRROR": str(mirror), "RESUMERGE_LEASE_SECONDS": "2"}
    hands.hub.allowance.give(MOST)
    hands.die_in_run_cell(mirrored=2, **env)  # the snapshot that names the first is there
    hands.hub.allowance.give(None)
    hands.lose_machine()
    executed = hands.run_all(**env)
    assert hands.computed_last() < hands.total(), "what is whole in the mirror is not made again"
    assert "7 of 7 shards" in html_of(executed, "run")[0]
    assert "The finished model is only in the mirror" in text_of(executed, "try")
    far = {path.name: path.read_bytes() for path in mirror.iterdir() if path.is_file()}
    far.pop("README.md")
    hands.lose_machine()
    finished = hands.run_all(notebook=cells(*MERGES, "verify"), **env)
    assert "Already done: " in html_of(finished, "run-4")[0]
    assert "intact" in html_of(finished, "verify-5")[0]
    assert far == hands.undisturbed()


def test_an_interrupted_cell_commits_and_says_how_to_go_on(hands: Hands) -> None:
    hands.hub.allowance.give(MOST)
    interrupted = hands.run_all_but_interrupt(units=20)
    hands.hub.allowance.give(None)
    (live,) = html_of(interrupted, "run")
    assert "Stopped by SIGINT; finished work is committed" in live
    assert "To resume, run this cell again, or: resumerge.resume(&#39;merged-" in live
    assert 20 <= hands.committed() < hands.total()
    (error,) = [o for o in cell_outputs(interrupted, "run") if o["output_type"] == "error"]
    assert "Traceback" not in "\n".join(error["traceback"])
    assert "To resume: resumerge.resume('merged-" in "\n".join(error["traceback"])
    hands.run_all(notebook=cells(*MERGES))
    assert hands.committed() == hands.total()
