"""Each file in broken/ is refused with the line, the place and the way out."""

from pathlib import Path

import pytest

from resumerge.errors import InputError
from resumerge.recipe import load_recipe, parse_recipe

BROKEN = Path(__file__).parent / "broken"

# file: line, YAML path, words of the message in this order
FACTS = {
    "misspelled_method": (1, "merge_methd", "Did you mean 'merge_method'?"),
    "misspelled_in_source": (5, "slices[0].sources[0].layer_ranges", "mean 'layer_range'?"),
    "no_method": (1, "merge_method", "'merge_method' is missing"),
    "duplicate_key": (5, "dtype", "twice, on lines 4 and 5"),
    "not_yaml": (3, "", "not valid YAML … quoted scalar"),
    "tab": (3, "", "not valid YAML … indentation by spaces"),
    "empty": (None, "", "empty"),
    "list_on_top": (2, "", "not a mapping … a list"),
    "two_documents": (5, "", "have no name"),
    "unequal_slice": (
        7,
        "slices[0].sources[1].layer_range",
        "org/a [0, 8] has 8, org/b [4, 14] has 10 … equal ranges … separate "
        "slices … - model: org/a … layer_range: [0, 8] … - model: org/b … layer_range: [4, 12] … "
        "- model: org/a … layer_range: [0, 8] … - model: org/b … layer_range: [4, 14]",
    ),
    "backwards_range": (5, "slices[0].sources[0].layer_range", "0 <= start < stop … [8, 4]"),
    "fractional_range": (5, "slices[0].sources[0].layer_range", "whole numbers … [0, 2.5]"),
    "no_range": (6, "slices[0].sources[1].layer_range", "'layer_range' is missing … [start, stop]"),
    "adapter_beside_a_model": (4, "models[0].adapter", "Write … 'model: org/name+org/adapter'"),
    "range_beside_sources": (4, "slices[0].layer_range", "an entry of this slice's 'sources:'"),
    "range_in_models": (4, "models[0].layer_range", "merged whole … write 'slices:'"),
    "no_models": (2, "models", "empty"),
    "models_and_slices": (4, "slices", "either models or slices"),
    "same_model_twice": (5, "models[2].model", "org/a is listed twice"),
    "truth_in_a_range": (5, "slices[0].sources[0].layer_range", "whole numbers … [True, 4]"),
    "union_misspelled": (4, "tokenizer_source", "union, base, or a model … 'onion' … 'union'?"),
    "no_revision": (3, "models[0].model", "'org/a@' is neither … org/name@revision"),
    "dtype_of_eight_bits": (4, "dtype", "'float8' … Write one of these names"),
    "dtype_nickname": (4, "dtype", "'bf16' … Write 'bfloat16'"),
    "mixed_gradient": (7, "models[0].parameters.weight[1]", "numbers only … only"),
    "nested_filter": (7, "models[0].parameters.weight[0].value", "one flat list"),
    "null_weight": (5, "models[0].parameters.weight", "nothing (null) … delete the parameter"),
    "numeric_filter": (6, "models[0].parameters.weight[0].filter", "quotes: '3'"),
    "lora": (3, "models[0].model", "can have only one LoRA adapter … model+adapter"),
    "token_without_source": (6, "tokenizer.tokens.<|x|>", "This token has no source"),
    "tokenizer_key": (
        5,
        "tokenizer.token",
        "Unknown key 'token' in tokenizer … Did you mean 'tokens'?",
    ),
    "tokenizer_twice": (5, "tokenizer_source", "either tokenizer or tokenizer_source … Delete"),
    "modules": (3, "modules.text_decoder", "module names no models … neither models nor slices"),
    "modules_as_a_list": (2, "modules", "not a mapping … Write 'key: value' lines"),
    "unknown_key_in_a_module": (4, "modules.text_decoder.modles", "Did you mean 'models'?"),
    "module_with_models_and_slices": (
        5,
        "modules.text_decoder.slices",
        "A module has either models or slices, not both",
    ),
    "unequal_slice_in_a_module": (
        7,
        "modules.text_decoder.slices[0].sources[1].layer_range",
        "different numbers of layers … org/a [0, 4] has 4, org/b [0, 5] has 5",
    ),
    "no_such_folder": (3, "models[0].model", "neither a folder"),
    "hub_address": (3, "models[0].model", "Write 'org/a'"),
    "python_tag": (3, "", "not valid YAML … os.getcwd"),
    "alias_bomb": (1, "", "at most 100,000 values"),
    "alias_of_itself": (2, "", "an alias that contains itself"),
}


@pytest.mark.parametrize("name", FACTS)
def test_is_one_problem_with_its_line_place_and_way_out(name: str) -> None:
    line, path, words = FACTS[name]
    with pytest.raises(InputError) as caught:
        load_recipe(BROKEN / f"{name}.yaml")
    [problem] = caught.value.problems
    assert (problem.line, problem.path) == (line, path)
    assert problem.where == str(BROKEN / f"{name}.yaml")
    assert problem.expected and problem.found and problem.fix
    rest = str(problem)
    for part in words.split(" … "):
        assert part in rest
        rest = rest[rest.index(part) + len(part) :]


def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(BROKEN / "several.yaml")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (3, "models[0].modle"),
        (6, "models[1].parameters.weight[1]"),
        (7, "dtype"),
        (8, "chat_template"),
    ]


def test_unequal_ranges_are_told_beside_an_unknown_key() -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(BROKEN / "several_in_a_slice.yaml")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (5, "slices[0].sources[1].layer_range"),
        (6, "slices[0].base_mdoel"),
        (8, "dtpye"),
    ]


def test_all_that_is_wrong_with_tokens_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(BROKEN / "several_of_tokens.yaml")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (5, "tokenizer.source"),
        (7, "tokenizer.tokens.<t>.force"),
        (8, "tokenizer.tokens.<q>.source.knid"),
        (8, "tokenizer.tokens.<q>.source.Kind"),
        (9, "tokenizer.pad_to_multiple_of"),
        (10, "chat_template"),
    ]


def test_every_broken_file_is_in_the_table() -> None:
    assert {path.stem for path in BROKEN.iterdir()} == {
        *FACTS,
        "several",
        "several_in_a_slice",
        "several_of_tokens",
    }


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="a folder, not a file"):
        load_recipe(tmp_path)
    (tmp_path / "weights.yaml").write_bytes(b"merge_method: \xff\xfe")
    with pytest.raises(InputError, match="0xff at offset 14"):
        load_recipe(tmp_path / "weights.yaml")


def test_no_words_of_the_validation_library_reach_the_user() -> None:
    for wrong in ("3", "[1]", "text", "{a: 1}", "[[1]]", "null", "[null]", "{1: 2}"):
        for place in (
            "models: [{{model: org/a, parameters: {{weight: {}}}}}]",
            "models: [{{model: org/a, parameters: {}}}]",
            "models: [{{model: {}}}]",
            "models: {}",
            "slices: [{}]",
            "slices: [{{sources: {}}}]",
            "slices: [{{sources: [{{model: org/a, layer_range: {}}}]}}]",
            "models: [{{model: org/a}}]\ndtype: {}",
            "models: [{{model: org/a}}]\nbase_model: {}",
        ):
            try:
                parse_recipe("merge_method: linear\n" + place.format(wrong))
            except InputError as error:
                for word in ("pydantic", "Input should", "Field required", "type=", "unfit"):
                    assert word not in str(error)
