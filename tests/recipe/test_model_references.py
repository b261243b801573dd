"""Which text names a folder, which a model on the Hub, and at what revision."""

import re
from pathlib import Path

import pytest

from resumerge.recipe import ModelRef, parse_recipe
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import is_local, read_reference


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "at@home", "a+b", "deep/er/still"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "revision"),
    [
        ("org/name", "org/name", None),
        ("org/name@main", "org/name", "main"),
        ("org/name@refs/pr/1", "org/name", "refs/pr/1"),
        ("gpt2", "gpt2", None),
        ("here", "here", None),
        ("here@main", "here", None),  # a folder has no revisions
        ("./here@main", "./here", None),
        ("at@home", "at@home", None),
        ("a+b", "a+b", None),
        ("deep/er/still", "deep/er/still", None),
        ("./absent", "./absent", None),
        ("./absent@x", "./absent@x", None),
        ("/absent/model", "/absent/model", None),
        ("~/absent/model", "~/absent/model", None),
        ("~/absent", "~/absent", None),
        ("../absent", "../absent", None),
    ],
)
def test_text(text: str, name: str, revision: str | None) -> None:
    assert read_reference(text) == ModelRef(text, name, revision)


def test_a_file_is_a_path_and_no_name_on_the_hub() -> None:
    Path("here/config.json").write_text("{}")
    assert is_local("here/config.json")
    assert read_reference("here/config.json") == ModelRef("here/config.json", "here/config.json")


@pytest.mark.parametrize("text", ["here@", "./here@", "org/name@", "gpt2@"])
def test_a_revision_is_not_empty(text: str) -> None:
    with pytest.raises(InvalidValue, match="neither a folder"):
        read_reference(text)


@pytest.mark.parametrize(
    ("text", "base", "lora"),
    [
        ("org/name+org/adapter", "org/name", "org/adapter"),
        ("org/name@main+org/adapter@v2", "org/name@main", "org/adapter@v2"),
        ("here+./adapter", "here", "./adapter"),
        ("here + ./adapter", "here", "./adapter"),
        ("org/name + org/adapter", "org/name", "org/adapter"),
        ("./here+./a/b", "./here", "./a/b"),
        ("a+b+org/adapter", "a+b", "org/adapter"),  # a+b is a folder
        ("org/name+a+b", "org/name", "a+b"),
    ],
)
def test_a_model_with_an_adapter(text: str, base: str, lora: str) -> None:
    found = read_reference(text)
    assert found.text == text
    assert found.parts == (read_reference(base), read_reference(lora))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"model": {"path": "org/name", "revision": "abc"}}, "org/name@abc"),
        ({"model": {"path": "org/name", "revision": None}, "lora": None}, "org/name"),
        ({"model": "org/name@abc"}, "org/name@abc"),
        ({"model": "org/a", "lora": "org/b"}, "org/a+org/b"),
        (
            {"model": {"path": "org/a"}, "lora": {"path": "org/b", "revision": "v2"}},
            "org/a+org/b@v2",
        ),
    ],
)
def test_the_spelled_out_form_is_the_same_model(written: object, text: str) -> None:
    assert read_reference(written) == read_reference(text)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        None,
        3,
        [],
        {},
        {"path": "org/name"},
        {"model": {"path": 3}},
        {"model": {"path": "org/a", "revision": 3}},
        {"model": "org/a+org/b", "lora": "org/c"},
        {"model": "org/a", "lora": "org/b+org/c"},
        {"model": "org/a", "lora": 3},
        {"model": "org/a", "lora": {"path": "org/b", "subfolder": "c"}},
        {"lora": "org/b"},
        "org/name@",
        "a/b/c",
        "org/na me",
        "org/../name",
        "org/name+org/adapter+org/other",
        "org/name+",
        "+org/adapter",
        "org/name+not a name",
        "x" * 5000,
        "org/name\0",
    ],
)
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidValue):
        read_reference(wrong)


def test_a_revision_of_a_folder_is_noted() -> None:
    recipe = parse_recipe("merge_method: linear\nmodels: [{model: here@main}]")
    assert recipe.notes == ("here@main is a folder: its revision is ignored",)
    adapted = parse_recipe("merge_method: linear\nmodels: [{model: org/name+here@main}]")
    assert adapted.notes == recipe.notes


@pytest.mark.parametrize(
    "model", ["org/name+org/adapter", "./here+org/adapter", "org/name/FILE.safetensors"]
)
def test_a_model_without_a_revision_is_not_noted(model: str) -> None:
    recipe = parse_recipe(f"merge_method: linear\nmodels: [{{model: {model}}}]")
    assert recipe.notes == ()


def test_an_architecture_written_over_the_models_own_has_no_effect() -> None:
    recipe = parse_recipe(
        "merge_method: linear\n"
        "models: [{model: {model: org/a, override_architecture: LlamaForCausalLM}}]\n"
    )
    assert [ref.name for ref in recipe.models] == ["org/a"]
    assert "override_architecture has no effect" in recipe.notes[0]


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("org/a", "Write 'org/a'"),
        ("org/a/tree/main", "Write 'org/a'"),
        ("org/a/tree/v2?download=true", "Write 'org/a@v2'"),
        (
            "org/a/blob/main/model.safetensors",
            "Write 'org/a'; 'org/a/model.safetensors' is this weight file alone",
        ),
        ("org/a/resolve/v2/config.json", "Write 'org/a@v2'"),
        ("gpt2", "Write 'gpt2'"),
    ],
)
def test_the_advice_on_an_address_of_the_hub_names_a_model(page: str, written: str) -> None:
    with pytest.raises(InvalidValue) as error:
        read_reference(f"https://huggingface.co/{page}")
    assert error.value.fix == written
    for name in re.findall("'(.*?)'", written):
        assert read_reference(name).name in ("org/a", "gpt2")
