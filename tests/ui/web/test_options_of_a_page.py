"""Promise: the page has the options of `run`, as declared, but for paths and machines."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.errors import InputError
from resumerge.options import declared
from resumerge.options.types import Folder
from resumerge.ui.web.settings import options_from_fields, settings, words_of


def chosen(**given: Any) -> list[Any]:
    return [given.get(option.name) for option in settings()]


def test_every_option_of_run_is_there_but_folders_and_clusters() -> None:
    missing = {option.name for option in declared("run")} - {o.name for o in settings()}
    assert missing == {"state_dir", "intermediate_dir", "ray", "ray_resources"}
    assert not any(isinstance(option.type, Folder) for option in settings())
    assert {option.name for option in settings(["mirror"])} == {
        option.name for option in settings() if option.name != "mirror"
    }


def test_empty_fields_ask_for_nothing() -> None:
    for nothing in (None, "", " ", False):
        values = [nothing for _ in settings()]
        assert words_of(options_from_fields(settings(), values), "run") == []


def test_fields_are_the_words_of_the_command() -> None:
    values = chosen(memory=" 2GB ", threads="3", keep="a, b", stream=True, materialize="never")
    options = options_from_fields(settings(), values)
    assert words_of(options, "run") == [
        *("--memory", "2000000000", "--threads", "3", "--keep", "a", "--keep", "b"),
        *("--materialize", "never", "--stream"),
    ]
    assert words_of(options_from_fields(settings(), chosen(seed="0")), "run") == ["--seed", "0"]
    assert "--keep" not in words_of(options, "resume")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"memory": "much"}, "is not a size"),
        ({"threads": "-1"}, "The value of the option threads is invalid"),
        ({"threads": "two"}, "The value of the option threads is invalid"),
        ({"stream": True, "offline": True}, "exclude each other"),
        ({"mirror": "/mnt/disk"}, "cannot be the mirror of a merge from a page"),
        ({"mirror": "../disk"}, "cannot be the mirror of a merge from a page"),
        ({"mirror": "~"}, "cannot be the mirror of a merge from a page"),
    ],
)
def test_what_is_invalid_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        options_from_fields(settings(), chosen(**given))


def test_a_mirror_is_an_address() -> None:
    options = options_from_fields(settings(), chosen(mirror="hf://org/name"))
    assert words_of(options, "run") == ["--mirror", "hf://org/name"]
