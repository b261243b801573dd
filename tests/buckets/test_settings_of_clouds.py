"""Promise: settings of the clouds' libraries that cannot be used are told, and the cache needs none
but the server's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.buckets.calls import open_bucket
from resumerge.buckets.file import BucketFile, model_folder
from resumerge.buckets.model import BucketModel, cached_bucket_model
from resumerge.errors import InputError, StoreError
from resumerge.remote.metadata_cache import MetadataCache

AZURE = "https://acme.blob.core.windows.net"


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unset credentials and servers."""
    names = ("CONNECTION_STRING", "ACCOUNT", "SERVICE_ENDPOINT", "KEY", "SAS_TOKEN")
    for name in ("STORAGE_EMULATOR_HOST", *(f"AZURE_STORAGE_{name}" for name in names)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def setting(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "url, variables, server",
    [
        ("gs://box/m", {}, "storage.googleapis.com"),
        ("gs://box/m", {"STORAGE_EMULATOR_HOST": "http://h:9000"}, "h_9000"),
        ("az://box/m", {"AZURE_STORAGE_ACCOUNT": "acme"}, "acme.blob.core.windows.net"),
        ("az://box/m", {"AZURE_STORAGE_SERVICE_ENDPOINT": AZURE}, "acme.blob.core.windows.net"),
        (
            "az://box/m",
            {
                "AZURE_STORAGE_SERVICE_ENDPOINT": "http://h:9000/acme",
                "AZURE_STORAGE_ACCOUNT": "acme",
            },
            "h_9000_acme",
        ),
        (
            "az://box/m",
            {"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={AZURE};AccountName=acme"},
            "acme.blob.core.windows.net",
        ),
        (  # a connection string is complete, and another account beside it is not used
            "az://box/m",
            {
                "AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={AZURE};AccountName=acme",
                "AZURE_STORAGE_ACCOUNT": "other",
            },
            "acme.blob.core.windows.net",
        ),
    ],
)
def test_the_cache_needs_no_credentials(
    url: str, variables: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting(monkeypatch, **variables)
    folder = model_folder(url)
    assert folder.parts[-3:] == (server, "box", "m")
    if url.startswith("az"):  # credentials change nothing
        setting(monkeypatch, AZURE_STORAGE_KEY="c2VjcmV0")
        assert model_folder(url) == folder


@pytest.mark.parametrize("value", ["http://[bad", "http://h:99999", "h:9000", "ftp://h"])
def test_an_endpoint_that_is_no_address(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting(monkeypatch, STORAGE_EMULATOR_HOST=value)
    with pytest.raises(InputError) as refused:
        model_folder("gs://box/m")
    assert "STORAGE_EMULATOR_HOST" in str(refused.value)
    with pytest.raises(StoreError, match="cannot be used: STORAGE_EMULATOR_HOST") as error:
        open_bucket("gs://box/m").list("")
    assert error.value.denied


@pytest.mark.parametrize("value", ["http://[bad", "http://h:99999", "ftp://h"])
@pytest.mark.parametrize("is_complete", [False, True])
def test_an_endpoint_of_azure_that_is_no_address(
    value: str, is_complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"BlobEndpoint={value};AccountName=acme;AccountKey=c2VjcmV0"
    if is_complete:
        setting(monkeypatch, AZURE_STORAGE_CONNECTION_STRING=text)
    else:
        setting(monkeypatch, AZURE_STORAGE_SERVICE_ENDPOINT=value, AZURE_STORAGE_KEY="c2VjcmV0")
    with pytest.raises(InputError):
        model_folder("az://box/m")
    with pytest.raises(StoreError) as error:
        open_bucket("az://box/m").list("")
    assert error.value.denied


@pytest.mark.parametrize(
    "name, value",
    [
        *(("AWS_ENDPOINT_URL", url) for url in ("http://[bad", "http://h:99999", "h:9000")),
        ("AWS_ENDPOINT_URL", "ftp://h"),
        ("AWS_REGION", "no region"),
    ],
)
def test_an_endpoint_or_a_region_of_s3_that_is_none(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting(monkeypatch, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1")
    setting(monkeypatch, **{name: value})
    with pytest.raises(InputError) as refused:
        model_folder("s3://box/m")
    assert name in str(refused.value)


def test_a_name_that_no_bucket_can_have() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
        with pytest.raises(StoreError, match="no bucket can have this name") as error:
            open_bucket("gs://my-bucket-/m").list("")
    assert error.value.denied


@pytest.mark.parametrize("text", [None, "", "[1]", "3", "{}", '{"type": [1]}'])
def test_a_file_of_credentials_that_cannot_be_used(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    setting(monkeypatch, GOOGLE_APPLICATION_CREDENTIALS=str(path))
    with pytest.raises(StoreError, match="no usable credentials") as error:
        open_bucket("gs://box/m").list("")
    assert error.value.denied


def test_a_key_of_azure_that_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    setting(monkeypatch, AZURE_STORAGE_SERVICE_ENDPOINT="http://127.0.0.1:1/acme")
    setting(monkeypatch, AZURE_STORAGE_ACCOUNT="acme", AZURE_STORAGE_KEY="hunter2")
    with pytest.raises(StoreError, match="no usable credentials") as error:
        open_bucket("az://box/m").list("")
    assert error.value.denied
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "url, name",
    [
        ("s3://box/m", "AWS_PROFILE"),
        ("gs://box/m", "CLOUDSDK_CONFIG"),
        ("az://box/m", "AZURE_STORAGE_KEY"),
    ],
)
def test_a_client_is_used_again_until_its_settings_change(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_bucket(url)
    monkeypatch.setenv("OTHER", "another")
    assert open_bucket(url) is open_bucket(f"{url}/deeper") is before
    monkeypatch.setenv(name, "another")
    assert open_bucket(url) is not before


@pytest.mark.parametrize("asked", ["", "model.safetensors"])
@pytest.mark.parametrize("revision", ["pinned", None])
def test_a_listing_is_found_by_the_revision_of_its_source_and_as_the_latest(
    revision: str | None, asked: str
) -> None:
    """The revision says which weight files a source has, and the listing has others as well."""
    metadata, folder = MetadataCache(), model_folder("gs://box/m")
    file = BucketFile("gs://box/m", "listed", "model.safetensors", 9, "7", folder)
    listed = BucketModel(
        "gs://box/m", "listed", folder, {file.name: file}, online=True, is_listing=True
    )
    listed.remember(metadata, "pinned", asked)
    found = cached_bucket_model("gs://box/m", revision, metadata, asked)
    assert {name: (each.size, each.etag) for name, each in found.files.items()} == {
        "model.safetensors": (9, "7")
    }
