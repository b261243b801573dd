"""Promise: gates that were kept are used again only for the step that computed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from resumerge.experts.upcycling.gates.embedding import EmbeddedPrompts
from resumerge.experts.upcycling.gates.hidden_states import HiddenStates
from resumerge.experts.upcycling.gates.prompts import PromptTokens
from resumerge.tensors import Step, Stored

TABLE, OTHER = (Stored(name, "F32", (9, 4), "f", 0) for name in ("embedding", "other"))
WEIGHT = Stored("q_proj", "F32", (4, 4), "f", 0)
EXPERTS = PromptTokens(((1, 2), (3,)), ()), PromptTokens(((4,),), ((5,),))
PROMPTS = EXPERTS[0], PromptTokens(((4,),), ((6,),))
EMBEDDED = EmbeddedPrompts(TABLE, EXPERTS, 2)
HIDDEN = HiddenStates("base", "hidden", {"a": 1}, TABLE, ({"q_proj": WEIGHT},), EXPERTS, 2)


@pytest.mark.parametrize(
    ("step", "other"),
    [
        (EMBEDDED, {"table": OTHER}),
        (EMBEDDED, {"experts": PROMPTS}),
        (HIDDEN, {"embedding": OTHER}),
        (HIDDEN, {"experts": PROMPTS}),
        (HIDDEN, {"mode": "hidden_avg"}),
        (HIDDEN, {"config": {"a": 2}}),
        (HIDDEN, {"layers": ({"q_proj": replace(WEIGHT, name="k_proj")},)}),
    ],
)
def test_what_decides_the_gates_is_in_the_key(step: Any, other: dict[str, Any]) -> None:
    again: Step = replace(step)
    assert again.key == step.key != replace(step, **other).key
