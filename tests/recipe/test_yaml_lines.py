"""Lines are the file's, through anchors and merge keys too."""

import time

import pytest

from resumerge.errors import InputError
from resumerge.recipe.yaml_lines import MOST_CHARS, load_yaml

TEXT = """\
# line 1
common: &common
  weight: 1
  density: 0.5

models:
  - model: org/a
    parameters: *common
  - model: org/b
    parameters:
      <<: *common
      weight: [2,
        3]
"""


def test_every_place_has_its_line() -> None:
    lines = load_yaml(TEXT, "f")[0].lines
    assert lines[""] == 2
    assert lines["models"] == 6
    assert lines["models[0]"] == 7
    assert lines["models[1].model"] == 9
    assert lines["models[1].parameters.weight"] == 12
    assert lines["models[1].parameters.weight[1]"] == 13


def test_what_comes_through_an_alias_stands_where_it_is_written() -> None:
    lines = load_yaml(TEXT, "f")[0].lines
    assert lines["models[0].parameters"] == 8
    assert lines["models[0].parameters.weight"] == 3
    assert lines["models[1].parameters.density"] == 4


def test_merge_keys_fill_in_and_never_override() -> None:
    data = load_yaml(TEXT, "f")[0].data
    assert data["models"][1]["parameters"] == {"weight": [2, 3], "density": 0.5}
    both = load_yaml("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y]}", "f")[0].data
    assert both["z"] == {"a": 1, "b": 2}


def test_every_duplicate_key_is_told_with_both_lines() -> None:
    problems = load_yaml("a: 1\nb: {c: 1,\n  c: 2}\na: 3", "f")[0].problems
    assert [(p.path, p.line, p.found) for p in problems] == [
        ("b.c", 3, "lines 2 and 3"),
        ("a", 4, "lines 1 and 4"),
    ]


def merged_often(times: int, keys: int) -> str:
    entries = ",".join(f"k{i}: 1" for i in range(keys))
    return f"a: &a {{{entries}}}\nb: {{<<: [{','.join(['*a'] * times)}]}}"


HOSTILE = {
    "deep brackets": "a: " + "[" * 100_000,
    "deep dashes": "- " * 100_000,
    "deep braces": "{a: " * 10_000,
    "too long": "a: " + "x" * MOST_CHARS,
    "merge keys that multiply": merged_often(times=80_000, keys=3000),
    "merge key of itself": "&a\nb: 1\n<<: *a",
    "merge key of a number": "<<: 3",
    "nul": "a: \0",
    "int that is none": "a: !!int ''",
    "timestamp that is none": "a: !!timestamp x",
    "list as a key": "? [1, 2]\n: 3",
    "set": "a: !!set {x}",
    "python name": "a: !!python/name:os.getcwd ''",
    "alias of nobody": "a: *nobody",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_in_good_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(InputError):
        load_yaml(text, "f")
    assert time.process_time() - started < 10.0
