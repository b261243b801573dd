"""Promise: the address of a bucket names a model; of a wrong one no secret is repeated."""

from __future__ import annotations

import pytest

from resumerge.errors import InputError
from resumerge.recipe import parse_recipe
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import is_local, read_reference
from resumerge.recipe.types import ModelRef


@pytest.mark.parametrize(
    "text, expected",
    [
        ("s3://bucket", ModelRef("s3://bucket", "s3://bucket")),
        ("s3://b.u-c/k/ft", ModelRef("s3://b.u-c/k/ft", "s3://b.u-c/k/ft")),
        ("s3://bucket/k/", ModelRef("s3://bucket/k/", "s3://bucket/k")),
        ("s3://bucket/k@1", ModelRef("s3://bucket/k@1", "s3://bucket/k@1")),
        ("s3://bucket/a b/ä", ModelRef("s3://bucket/a b/ä", "s3://bucket/a b/ä")),
        (
            "s3://bucket/k/m.safetensors",
            ModelRef("s3://bucket/k/m.safetensors", "s3://bucket/k", file="m.safetensors"),
        ),
        ("s3://bucket/m.ckpt", ModelRef("s3://bucket/m.ckpt", "s3://bucket", file="m.ckpt")),
        ("az://box/k?v=1", ModelRef("az://box/k?v=1", "az://box/k?v=1")),
        ("s3://model.pth", ModelRef("s3://model.pth", "s3://model.pth")),
    ],
)
def test_a_folder_or_a_weight_file(text: str, expected: ModelRef) -> None:
    assert read_reference(text) == expected
    assert not is_local(read_reference(text).name)
    assert read_reference({"model": {"path": text}}) == expected
    recipe = parse_recipe(f"merge_method: passthrough\nmodels: [{{model: '{text}'}}]")
    assert recipe.models == (expected,) and recipe.notes == ()


def test_a_model_with_an_adapter() -> None:
    ref = read_reference("s3://bb/base+s3://bb/lora")
    assert [part.text for part in ref.parts] == ["s3://bb/base", "s3://bb/lora"]
    ref = read_reference("s3://bb/k/m.safetensors+org/lora")
    assert [part.text for part in ref.parts] == ["s3://bb/k/m.safetensors", "org/lora"]
    ref = read_reference("s3://bucket+s3://bb/k@1")
    assert [part.name for part in ref.parts] == ["s3://bucket", "s3://bb/k@1"]
    ref = read_reference("s3://bucket/k+org/lora@main")
    assert [part.name for part in ref.parts] == ["s3://bucket/k", "org/lora"]
    ref = read_reference({"model": "org/base", "lora": {"path": "s3://bb/lora"}})
    assert [part.name for part in ref.parts] == ["org/base", "s3://bb/lora"]


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3:///k", "s3://bb/../k", "s3://bb//k", "s3://bb/./k", "s3://bb/k\\l", "s3://_/k"],
)
def test_what_is_no_place_in_a_bucket(text: str) -> None:
    with pytest.raises(InvalidValue, match="not the address of a place in a bucket"):
        read_reference(text)


@pytest.mark.parametrize("scheme", ["hf", "https", "file", "abfs"])
def test_other_addresses_are_not_taken_for_paths_or_repos(scheme: str) -> None:
    with pytest.raises(InputError, match="not read from such addresses") as refused:
        parse_recipe(f"merge_method: passthrough\nmodels: [{{model: '{scheme}://a/b'}}]")
    [problem] = refused.value.problems
    assert (problem.line, problem.found) == (2, f"an address that begins with {scheme}://")


def test_an_address_in_capitals_is_told_how_to_write_it() -> None:
    with pytest.raises(InvalidValue, match="begins with small letters") as refused:
        read_reference("S3://bucket/Model")
    assert refused.value.fix == "s3://bucket/Model"


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hunter2@bucket/k",
        "s3://AKIA:hunter2/hunter2@bucket/k",
        "s3://AKIA:hunter2+hunter2@bucket/k",
        "S3://AKIA:hunter2@bucket/x",
        "s3://bb/k+S3://AKIA:hunter2@bucket/x",
        "s3://AKIA:hunter2@bucket/x+a/b+c/d",
        "a/b+c/d+https://AKIA:hunter2@host/x",
        "az://box/m?sv=1&sig=hunter2",
        "az://box?sv=1&sig=hunter2%3D",
        "az://box/m?sig=hunter2+hunter2/=",
        "AZ://box/m?sv=1&sig=hunter2",
        "gs://bb/k?X-Goog-Signature=hunter2",
    ],
)
def test_a_password_is_not_repeated(text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_reference(text)
    told = str(vars(refused.value)) + str(refused.value)
    assert "hunter2" not in told and "AKIA" not in told
    assert "environment" in told or "https" in text


def test_a_bucket_has_no_revisions() -> None:
    with pytest.raises(InvalidValue, match="no revisions"):
        read_reference({"model": {"path": "s3://bb/k", "revision": "main"}})
