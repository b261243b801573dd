"""Promise: messages for a user of Python name functions, arguments and the user's own recipe."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from commands import resumerge as command
from tiny_models import write_family

import resumerge
from resumerge.engine.reporter import Reporter
from resumerge.errors import DoubtfulNumbers, InputError
from resumerge.options import declared
from resumerge.options.in_python import (
    _ARGUMENTS,
    _OWN,
    _OWN_FLAGS,
    error_in_python,
    in_python,
)
from resumerge.planning import Plan
from resumerge.planning.estimates.estimate import Prediction
from resumerge.ui.notebook.spoken import PythonReporter


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_family(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tab_offers_functions_and_no_rooms() -> None:
    offered = {name for name in dir(resumerge) if not name.startswith("__")}
    assert offered == set(resumerge.__all__)
    rooms = {p.name for p in Path(resumerge.__file__).parent.iterdir() if p.is_dir()}
    assert offered & rooms == {"methods"}
    assert all(callable(getattr(resumerge, name)) for name in offered)


def test_methods_is_a_function_and_still_the_room(folder: Path) -> None:
    before = """import resumerge, sys
names = [method["name"] for method in resumerge.methods()["methods"]]
assert "ties" in names and resumerge.methods("ties")["methods"][0]["papers"]
from resumerge.methods import METHODS
assert list(METHODS) == names and resumerge.methods is sys.modules["resumerge.methods"]
print("as promised")"""
    assert "as promised" in command("--version", cwd=folder, before=before).stdout
    with pytest.raises(InputError):
        resumerge.methods("tise")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run once without --offline", "run once without offline=True"),
        ("write --no-evict, or leave --ray out", "write evict=False, or leave ray out"),
        ("--no-recheck", "no_recheck=True"),
        ("raise --memory to 60MB or more", "raise memory to 60MB or more"),
        ("--memory 2GB", "memory='2GB'"),
        ("with --threads 1 or a smaller --memory.", "with threads=1 or a smaller memory."),
        ("add --mirror DEST: a folder", "add mirror='DEST': a folder"),
        ("--device auto", "device='auto'"),
        ("`resumerge resume x --bring-back`", "`resumerge.resume('x', bring_back=True)`"),
        (
            "Start it:\nresumerge run 'a b' c --memory 2GB --threads 2 --restart\nor --restart",
            "Start it:\nresumerge.run('a b', 'c', memory='2GB', threads=2, restart=True)\n"
            "or restart=True",
        ),
        ("`resumerge verify x --sources`", "`resumerge verify x --sources`"),
        ("`resumerge run a b --keep x`", "`resumerge run a b --keep x`"),
        ("`resumerge run a b --memory`", "`resumerge run a b --memory`"),
        ("resumerge run 'a --restart", "resumerge run 'a --restart"),
        ("resumerge resume it as it was --offline", "resumerge resume it as it was --offline"),
        ("see resumerge verify x --offline", "see resumerge verify x --offline"),
        ("--query-gpu=name", "--query-gpu=name"),
        ("Decompose them (--embed-lora)", "Decompose them (embed_lora=True)"),
        ("--base MODEL", "base='MODEL'"),
        ("Change --include-regex or --sources", "Change include or sources=True"),
        ("--metric NAME, --jobs 3", "metrics='NAME', jobs=3"),
    ],
)
def test_an_option_is_named_as_the_argument(text: str, expected: str) -> None:
    assert in_python(text) == expected


def test_numbers_that_should_worry_are_an_error_because_of_an_argument() -> None:
    error = DoubtfulNumbers("out", ("NaN",))
    error_in_python(error)
    assert "With strict=True, they are an error:" in str(error)


def test_an_argument_that_is_named_is_one() -> None:
    functions = [getattr(resumerge, name) for name in resumerge.__all__]
    taken = {name for function in functions[4:] for name in signature(function).parameters}
    named = {*_OWN.values(), *(text.partition("=")[0] for text in _OWN_FLAGS.values())}
    assert named <= taken


def test_a_call_that_is_advised_can_be_made() -> None:
    for name, number in _ARGUMENTS.items():
        parameters = signature(getattr(resumerge, name)).parameters.values()
        positional = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        assert len(positional) == number


def test_no_documentation_of_a_function_has_an_option_of_the_command_line() -> None:
    for function in (resumerge.run, resumerge.resume, resumerge.plan, resumerge.extract_expert):
        options = {option.flag for option in declared() if f"{option.flag} " in function.__doc__}
        assert not options


def problem_of(recipe: Any, **options: Any) -> Any:
    with pytest.raises(InputError) as refused:
        resumerge.run(recipe, "out", **options)
    [problem] = refused.value.problems
    assert "/tmp/resumerge-" not in str(refused.value)
    return problem


def test_a_problem_is_placed_in_the_recipe_that_was_given(folder: Path) -> None:
    math = {"model": "math"}
    wrong = {"merge_method": "linear", "models": [math, {"modell": "code"}]}
    problem = problem_of(wrong)
    assert (problem.where, problem.path, problem.line) == (
        'recipe["models"][1]["modell"]',
        "",
        None,
    )
    first = {"name": "first", "merge_method": "linear", "models": [math]}
    assert problem_of([first, wrong]).where == 'recipe[1]["models"][1]["modell"]'
    [planned] = resumerge.plan(wrong)["problems"]
    assert planned["where"] == problem.where
    absent = {"merge_method": "linear", "models": [math, {"model": "org/absent"}]}
    problem = problem_of(absent, offline=True)
    assert problem.where == 'recipe["models"][1]["model"]'
    assert "offline=True" in problem.fix and "--" not in problem.fix


def test_extract_expert_names_the_model_and_no_line_of_a_recipe(folder: Path) -> None:
    with pytest.raises(InputError) as refused:
        resumerge.extract_expert("math", 0, "out")
    [problem] = refused.value.problems
    assert (problem.where, problem.path, problem.line) == ("math", "", None)
    done = command("extract-expert", "math", 0, "out", cwd=folder)
    assert done.returncode == 2
    assert "where:    math\n" in done.stderr
    assert "recipe" not in done.stderr and "line" not in done.stderr


def test_notes_name_arguments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = {"merge_method": "linear", "models": [{"model": "math"}, {"model": "code"}]}
    recipe |= {"parameters": {"weight": 1.0}}
    told: list[str] = []

    class Told(Reporter):
        def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
            told.extend(plan.notes)

        def note(self, text: str) -> None:
            told.append(text)

    given: Any = {"stream": True, "mirror_rate": 10**9, "mirror": "mirror"}
    planned = resumerge.plan(recipe, "out", **given)["notes"]
    resumerge.run(recipe, "out", **given, reporter=Told())
    resumerge.run(recipe, "again", **given | {"mirror": "other"}, progress="lines")
    for notes in (planned, told, capsys.readouterr().err.splitlines()):
        assert any("stream=True has no effect" in note for note in notes)
        assert not any("--stream" in note for note in notes)


def test_what_is_waited_for_names_arguments() -> None:
    told: list[str] = []

    class Told(Reporter):
        def waiting(self, text: str) -> None:
            told.append(text)

    PythonReporter(Told()).waiting("stop and lower --memory or --threads")
    assert told == ["stop and lower memory or threads"]


def test_all_that_a_reporter_is_told_is_passed_on() -> None:
    methods = {name for name, value in vars(Reporter).items() if callable(value)}
    assert methods <= vars(PythonReporter).keys()


def test_advice_names_no_file_that_will_be_gone(folder: Path) -> None:
    models = [{"model": "math"}, {"model": "code"}]
    recipe = {"merge_method": "linear", "models": models, "parameters": {"weight": 1.0}}
    run = resumerge.run(recipe, "out")
    problem = problem_of({**recipe, "dtype": "float16"})
    assert problem.fix.endswith("or start over: the same with restart=True")
    problem = problem_of(recipe, seed=5)
    own = run.ledger.parent / "recipe.yaml" if run.ledger else None
    assert f"start over: `resumerge.run('{own}', " in problem.fix and own and own.exists()
