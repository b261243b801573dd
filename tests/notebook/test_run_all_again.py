"""Whatever happens, *Run all* goes on, and the model is the same, byte for byte."""

from __future__ import annotations

from kernels import Hands, html_of, text_of

SLOW = 400_000
"""Bytes in a second from the Hub, for models of 1.5 MB together."""


def test_from_start_to_end_and_again(hands: Hands) -> None:
    first = hands.run_all()
    whole = hands.model()
    assert "config.json" in whole
    assert "No token" in text_of(first, "login")
    assert "it can be run" in html_of(first, "plan")[0]
    live, result = html_of(first, "run")
    assert "Done, in" in live
    assert "Over time" in result
    assert "Over time" in html_of(first, "status")[0]
    assert "intact" in html_of(first, "verify")[0]
    assert text_of(first, "try").startswith("The capital of France is ")
    again = hands.run_all(HF_TOKEN="hf_a_secret_of_mine")
    assert hands.model() == whole
    assert hands.attempts() == 1, "nothing was left to do"
    assert "was done already" in html_of(again, "run")[0]
    assert "A token was found in the environment" in text_of(again, "login")
    assert "a_secret_of_mine" not in str(again)


def test_the_kernel_is_killed_while_it_merges(hands: Hands) -> None:
    hands.hub.bytes_per_second = SLOW
    hands.die_in_run_cell()
    done = hands.committed()
    hands.hub.bytes_per_second = None
    executed = hands.run_all()
    assert hands.attempts() == 2
    assert "Going on" in html_of(executed, "run")[0]
    gone_on = hands.model()
    hands.lose_machine()
    hands.run_all()
    assert hands.attempts() == 1
    assert hands.model() == gone_on
    assert done > 0
