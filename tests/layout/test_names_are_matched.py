"""Names that differ by a wrapper are matched; names that differ in meaning are not."""

from __future__ import annotations

import pytest

from resumerge.layout import collapse, match_names

ENDS = [f"layers.{i}.{end}" for i in range(2) for end in ("attn.q.weight", "mlp.weight")]


def under(prefix: str, *more: str) -> list[str]:
    return [prefix + end for end in ENDS] + list(more)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("", "model."),
        ("bert.", ""),
        ("model.language_model.", "language_model.model."),
        ("language_model.model.", "model."),
        ("vision_tower.vision_model.encoder.", "vision_tower.encoder."),
        ("base_model.model.model.", "model."),
    ],
)
def test_a_wrapper_more_or_in_another_place(ours: str, theirs: str) -> None:
    found, renames = match_names(under(ours), under(theirs))
    assert found == dict(zip(under(ours), under(theirs)))
    assert len(renames) == 1


def test_heads_and_norms_come_along() -> None:
    ours = under("model.language_model.", "lm_head.weight", "model.language_model.norm.weight")
    theirs = under("language_model.model.", "language_model.lm_head.weight",
                   "language_model.model.norm.weight")  # fmt: skip
    found, _ = match_names(ours, theirs)
    assert found == dict(zip(ours, theirs))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("decoder.", "encoder."),  # another meaning
        ("vision_tower.", "language_model."),
        ("bert.", "roberta."),
    ],
)
def test_other_words_are_another_meaning(ours: str, theirs: str) -> None:
    assert match_names(under(ours), under(theirs)) == ({}, [])


def test_a_name_that_both_have_is_never_given_away() -> None:
    ours = under("encoder.") + under("")
    assert match_names(ours, under("")) == ({}, [])


def test_names_that_could_be_either_are_not_guessed() -> None:
    assert match_names(["norm.weight"], ["a.norm.weight", "b.norm.weight"]) == ({}, [])


def test_numbers_are_folded() -> None:
    names = [f"model.layers.{i}.mlp.experts.{e}.w1" for i in (0, 1, 2, 5) for e in (0, 1)]
    assert collapse([*names, "lm_head.weight", "h.3.a"]) == [
        "model.layers.{0-2,5}.mlp.experts.{0-1}.w1",
        "lm_head.weight",
        "h.3.a",
    ]
