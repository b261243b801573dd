"""Input before slice before recipe; the first filter that matches; none means the next level."""

from resumerge.recipe import Scalar, parse_recipe, resolve

MLP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.norm.weight"


def value(
    recipe: object = None,
    slice_: object = None,
    input_: object = None,
    *,
    tensor: str = MLP,
    t: float = 0.0,
    per_model: bool = True,
    stepwise: bool = False,
) -> Scalar | None:
    """Return the value of w, given the YAML of each level."""

    def level(w: object) -> str:
        return "{}" if w is None else f"{{w: {w}}}"

    parsed = parse_recipe(
        f"""
merge_method: m
slices:
  - sources: [{{model: org/a, layer_range: [0, 2], parameters: {level(input_)}}}]
    parameters: {level(slice_)}
parameters: {level(recipe)}
"""
    )
    where = parsed.slices[0]
    return resolve(
        parsed,
        "w",
        names=[tensor],
        t=t,
        slice_=where,
        input_=where.inputs[0] if per_model else None,
        stepwise=stepwise,
    )


def test_the_nearest_level_wins() -> None:
    assert value(1, 2, 3) == 3
    assert value(1, 2) == 2
    assert value(1) == 1
    assert value() is None


def test_a_value_of_zero_or_false_is_a_value() -> None:
    assert value(1, 2, 0) == 0
    assert value(1, "false") is False


def test_a_parameter_of_the_method_is_not_looked_up_in_a_model() -> None:
    assert value(1, None, 3, per_model=False) == 1


def test_no_matching_filter_falls_through_to_the_next_level() -> None:
    only_mlp = "[{filter: mlp, value: 5}]"
    assert value(1, only_mlp, None, tensor=MLP) == 5
    assert value(1, only_mlp, None, tensor=NORM) == 1
    assert value(None, None, only_mlp, tensor=NORM) is None


def test_an_empty_gradient_falls_through() -> None:
    assert value(1, None, "[]") == 1
    assert value(1, None, "[{value: []}, {value: 5}]") == 1


def test_the_first_match_wins() -> None:
    assert value("[{filter: mlp, value: 5}, {filter: up_proj, value: 6}, {value: 7}]") == 5
    assert value("[{value: 7}, {filter: mlp, value: 5}]") == 7


def test_a_filter_is_a_part_of_the_name_in_the_same_case_and_no_pattern() -> None:
    assert value("[{filter: layers.1.mlp, value: 5}]") == 5
    assert value("[{filter: up_proj.weight, value: 5}]") == 5
    assert value("[{filter: '*', value: 5}]") == 5
    assert value("[{filter: '', value: 5}]") == 5
    assert value("[{filter: null, value: 5}]") == 5
    for other in ("MLP", "layers.*", "layers.[0-9]", "*mlp*"):
        assert value(f"[{{filter: '{other}', value: 5}}]") is None


def test_gradients_are_taken_at_t_on_any_level() -> None:
    assert value("[0, 10, 0]", t=0.25) == 5
    assert value(1, "[{filter: mlp, value: [0, 1]}]", t=0.75) == 0.75


def test_stepwise_takes_the_entry_at_or_before_t() -> None:
    steps = [value("[true, false, true]", t=t, stepwise=True) for t in (0, 0.25, 0.5, 0.75, 1)]
    assert steps == [1, 1, 0, 0, 1]
