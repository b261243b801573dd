"""Names that differ by a wrapper are matched; names that differ in meaning are not."""

from __future__ import annotations

import pytest

from resumerge.layout import before_layers, collapse, match_names, split
from resumerge.layout.names import LayerName

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


def test_each_of_their_names_is_given_once_and_the_most_common_difference_first() -> None:
    ours = under("a.", "a.norm.weight", "b.norm.weight")
    theirs = under("x.a.", "x.a.norm.weight")
    found, renames = match_names(ours, theirs)
    assert found == dict(zip(under("a.", "a.norm.weight"), theirs))
    assert [str(rename) for rename in renames] == ["the prefix x. in place of (none)"]
    mixed = match_names(under("", "one.bias.x"), under("model.", "other.one.bias.x"))[1]
    assert [rename.theirs for rename in mixed] == ["model.", "other."]


def test_a_tensor_that_was_matched_is_not_matched_again() -> None:
    theirs = under("model.", "other.one.bias.x", f"other.{ENDS[0]}")
    found, _ = match_names(under("", "one.bias.x"), theirs)
    assert found == {
        **{end: f"model.{end}" for end in ENDS}, "one.bias.x": "other.one.bias.x"
    }  # fmt: skip


def test_two_of_ours_do_not_get_one_of_theirs() -> None:
    assert match_names(["one.w", "m.one.w"], ["m.x.one.w"])[0] == {"one.w": "m.x.one.w"}


def test_experts_and_layers_keep_their_first_number() -> None:
    """A name is never cut after the number of its layer: another layer is another tensor."""
    ours, theirs = ["model.layers.0.experts.1.w.weight"], ["h.layers.5.experts.1.w.weight"]
    assert match_names(ours, theirs) == ({}, [])
    assert match_names(["layers.0.experts.1.w"], ["layers.0.x.experts.1.w"]) == ({}, [])


def test_one_word_is_too_little_to_match() -> None:
    assert match_names(["a.weight"], ["b.a.c.weight"]) == ({}, [])
    assert match_names(["norm.weight"], ["a.norm.weight"])[0] == {"norm.weight": "a.norm.weight"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.mlp.up.weight", LayerName("model.layers", 3, "mlp.up.weight")),
        ("h.0.experts.1.w", LayerName("h", 0, "experts.1.w")),
        ("0.weight", None),
        ("0.h.1.weight", LayerName("0.h", 1, "weight")),
        ("model.layers.3", None),
        ("lm_head.weight", None),
    ],
)
def test_a_name_is_taken_apart_at_its_first_number(name: str, expected: LayerName | None) -> None:
    assert split(name) == expected
    if expected is not None:
        assert expected.at(expected.index) == name


def test_what_is_used_before_the_layers() -> None:
    before = ["model.embed_tokens.weight", "wte.weight", "patch.conv.bias", "shared.weight"]
    after = ["lm_head.weight", "model.norm.weight", "embed_out.weight", "embedding_norm.weight"]
    assert all(before_layers(name) for name in before)
    assert not any(before_layers(name) for name in after)


def test_two_numbers_in_a_row_are_a_range_and_one_is_itself() -> None:
    assert collapse(["h.1.a", "h.2.a"]) == ["h.{1-2}.a"]
    assert collapse(["h.1.a", "h.3.a"]) == ["h.{1,3}.a"]
    assert collapse(["h.7.a"]) == ["h.7.a"]
