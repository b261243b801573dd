"""Promise: settings of the clouds' libraries that cannot be used are reported, and the cache needs
none but the server's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_objects import Objects

from resumerge.buckets.address import is_bucket, split_address
from resumerge.buckets.calls import check_library, open_bucket
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
    """The revision pins the weight files of a source, but the listing has other files, too."""
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


AWS = "amazonaws.com"


@pytest.mark.parametrize(
    "endpoint, server",
    [
        ("", AWS),
        ("https://s3.eu-west-1.amazonaws.com", AWS),
        ("https://amazonaws.com", AWS),
        ("https://notamazonaws.com", "notamazonaws.com"),
        ("https://amazonaws.com.example:8443", "amazonaws.com.example_8443"),
        ("http://h:9000/a/b/", "h_9000_a_b"),
        ("http://[::1]:9000", "__1_9000"),
    ],
)
def test_aws_is_one_server_and_each_other_endpoint_another(
    endpoint: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting(monkeypatch, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if endpoint:
        setting(monkeypatch, AWS_ENDPOINT_URL=endpoint)
    assert model_folder("s3://box/m").parts[-3:] == (server, "box", "m")


@pytest.mark.parametrize(
    "variables, region",
    [
        ({}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-3"}, "eu-west-3"),
    ],
)
def test_the_region_that_is_named_or_any(
    variables: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    setting(monkeypatch, AWS_CONFIG_FILE=str(tmp_path / "none"), **variables)
    assert open_bucket("s3://box").api().meta.region_name == region


def test_an_account_in_the_path_of_an_endpoint_signs_what_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library does not look for the account in the path."""
    setting(monkeypatch, AZURE_STORAGE_SERVICE_ENDPOINT="http://h:9000/acme")
    setting(monkeypatch, AZURE_STORAGE_ACCOUNT="acme", AZURE_STORAGE_KEY="c2VjcmV0")
    assert open_bucket("az://box").api().credential.account_name == "acme"


def test_credentials_of_azure_sign_what_is_asked(
    served: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SAS token takes precedence over the account's key, as in the Azure CLI."""
    served.clear()
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    setting(monkeypatch, AZURE_STORAGE_SERVICE_ENDPOINT=f"{served.address}/acme")
    with pytest.raises(StoreError, match="no usable credentials") as told:
        open_bucket("az://box").list("")
    assert told.value.denied and served.requests == []
    setting(monkeypatch, AZURE_STORAGE_ACCOUNT="acme", AZURE_STORAGE_KEY="c2VjcmV0")
    open_bucket("az://box").list("")
    [asked] = served.requests
    assert asked.headers["authorization"].startswith("SharedKey acme:")
    served.requests.clear()
    setting(monkeypatch, AZURE_STORAGE_SAS_TOKEN="sv=1&sig=abc")
    open_bucket("az://box").list("")
    [asked] = served.requests
    assert (asked.query["sig"], "authorization" in asked.headers) == ("abc", False)
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    open_bucket("az://box").list("")
    assert served.requests[-1].query["sig"] == "abc"


@pytest.mark.parametrize(
    "scheme, package, extra",
    [
        ("s3", "boto3", "cloud"),
        ("gs", "google-cloud-storage", "google"),
        ("az", "azure-storage-blob", "azure"),
    ],
)
@pytest.mark.parametrize("around", [True, False])
def test_a_library_that_is_missing_is_told_with_how_to_install_it(
    scheme: str, package: str, extra: str, around: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the same if the package around the library is missing."""

    def find_spec(name: str) -> None:
        if around:
            raise ModuleNotFoundError(name)

    check_library(f"{scheme}://box/m", "models")
    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    with pytest.raises(InputError) as told:
        check_library(f"{scheme}://box/m", "mirrors")
    [problem] = told.value.problems
    assert problem.what.startswith(f"{package} is not installed, which mirrors in ")
    assert problem.fix == f"pip install 'resumerge[{extra}]'"
    assert problem.where == f"{scheme}://box/m"


@pytest.mark.parametrize(
    "url, parts",
    [
        ("s3://box", ("box", "")),
        ("s3://box/", ("box", "")),
        ("az://box/a/b/", ("box", "a/b")),
        ("gs://b-o.x_1/a b", ("b-o.x_1", "a b")),
    ],
)
def test_an_address_is_a_bucket_and_a_prefix(url: str, parts: tuple[str, str]) -> None:
    assert split_address(url) == parts and is_bucket(url)


@pytest.mark.parametrize("url", ["s3://", "s3://b", "s3:///m", "s3://-b/m", "s3://box/a//b",
                                 "s3://box/../m", "s3://box/m//"])  # fmt: skip
def test_what_is_no_address_of_a_bucket(url: str) -> None:
    with pytest.raises(InputError) as told:
        split_address(url)
    [problem] = told.value.problems
    assert (problem.where, problem.expected, problem.fix) == (
        url,
        "s3://bucket/prefix",
        "check the spelling",
    )


def test_an_address_does_not_repeat_a_secret() -> None:
    with pytest.raises(InputError) as told:
        split_address("az://box/m?sig=hunter2")
    [problem] = told.value.problems
    assert "hunter2" not in str(told.value) and "environment" in problem.fix
    assert problem.expected == "az://container/prefix"


def test_what_is_no_address_at_all() -> None:
    assert not any(map(is_bucket, ("s3", "org/name", "/s3/x", "hf://org/name", "S3://box", "")))
