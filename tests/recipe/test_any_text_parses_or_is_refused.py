"""Any text of a file is read as a Recipe or refused with an InputError, never with a traceback."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from resumerge.errors import InputError
from resumerge.recipe import Conditional, Recipe, parse_recipe

KEYS = st.sampled_from(
    [
        *("merge_method", "models", "slices", "sources", "model", "layer_range", "base_model"),
        *("parameters", "weight", "filter", "value", "dtype", "out_dtype", "tokenizer"),
        *("tokenizer_source", "path", "revision", "lora", "name", "<<"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.sampled_from(["linear", "org/a", "org/b@main", "./x", "float16", "1e-3", "base", ""])
    | st.text(max_size=8)
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | SCALARS, inner, max_size=5),
    max_leaves=30,
)
FLOATS = st.floats(allow_nan=False, width=32)


def outcome(text: str) -> Recipe | InputError:
    try:
        return parse_recipe(text)
    except InputError as error:
        assert error.problems
        assert all(problem.what and problem.fix for problem in error.problems)
        return error


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"#%@,?<> \n\t1.", max_size=60))
def test_any_text(text: str) -> None:
    outcome(text)


@given(st.dictionaries(KEYS, JUNK, max_size=6))
def test_any_data(data: dict[str, Any]) -> None:
    outcome(yaml.safe_dump(data))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,10}", fullmatch=True),
        FLOATS | st.booleans() | st.lists(FLOATS, max_size=5),
        max_size=4,
    ),
    st.lists(
        st.tuples(st.none() | st.text("abc._*", max_size=5), FLOATS | st.lists(FLOATS, min_size=1)),
        min_size=1,
        max_size=4,
    ),
)
def test_values_come_back_as_written(plain: dict[str, Any], filtered: list[Any]) -> None:
    written = {
        **plain,
        "filtered value": [{"filter": name, "value": value} for name, value in filtered],
    }
    recipe = outcome(
        yaml.safe_dump({"merge_method": "m", "models": [{"model": "org/a"}], "parameters": written})
    )
    assert isinstance(recipe, Recipe), str(recipe)
    expected = {key: _tuples(value) for key, value in plain.items()}
    expected["filtered value"] = tuple(
        Conditional(name, _tuples(value)) for name, value in filtered
    )
    assert recipe.parameters == expected


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
