"""Promise: a permanent refusal of a server is reported with what to do, and a temporary one is
retried; only the program's own conditions mean that an object changed."""

from __future__ import annotations

import errno
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from resumerge.buckets import azure, google, s3_errors
from resumerge.buckets.azure import azure_errors
from resumerge.buckets.calls import explain_bucket_error, open_bucket
from resumerge.buckets.errors import (
    Advice,
    Changed,
    Conflict,
    Refused,
    Unsupported,
    note_answer,
)
from resumerge.buckets.errors import (
    refusal as meaning,
)
from resumerge.buckets.google import google_errors
from resumerge.errors import InputError, Resumable, StoreError


class _Server(ThreadingHTTPServer):
    """A server that answers every request with `status` and the code of an error."""

    status, code = 409, ""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self.send_response(self.server.status)
        if self.server.code:
            self.send_header("x-ms-error-code", self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}/acme"
    text = f"BlobEndpoint={endpoint};AccountName=acme;AccountKey=c2VjcmV0"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(server: _Server, status: int, code: str) -> Exception:
    """Return the error that the program makes of a response about a blob."""
    server.status, server.code = status, code
    with pytest.raises(Exception) as error:
        open_bucket("az://box/m").nbytes("m/weights", "etag")
    return error.value


@pytest.mark.parametrize(
    "status, code, fix",
    [
        (409, "BlobArchived", "access tier"),
        (409, "BlobBeingRehydrated", "access tier"),
        (409, "BlobImmutableDueToPolicy", "immutability"),
        (409, "InvalidBlobType", "no block blob"),
        (409, "SnapshotsPresent", "snapshots"),
        (409, "PublicAccessNotPermitted", "AZURE_STORAGE_KEY"),
        (412, "LeaseIdMissing", "break the lease"),
        (412, "LeaseIdMismatchWithBlobOperation", "break the lease"),
    ],
)
def test_azure_refuses_for_good(server: _Server, status: int, code: str, fix: str) -> None:
    error = refusal(server, status, code)
    assert isinstance(error, StoreError) and error.denied
    assert code in error.message and fix in error.fix


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (412, "ConditionNotMet", Changed),
        (412, "TargetConditionNotMet", Changed),
        (412, "", Changed),
        (409, "BlobAlreadyExists", Changed),
        (412, "SourceConditionNotMet", Refused),
        (409, "PendingCopyOperation", Conflict),
    ],
)
def test_azure_refuses_for_now_or_the_blob_changed(
    server: _Server, status: int, code: str, kind: type
) -> None:
    error = refusal(server, status, code)
    assert type(error) is kind
    assert not getattr(error, "denied", False)


# Whatever the protocol

ADVICE = Advice("log in", "create it")


@pytest.fixture(autouse=True)
def nothing_was_answered() -> None:
    note_answer(0, {})


@pytest.mark.parametrize(
    "status, name, kind, denied, said",
    [
        (412, "a", Changed, None, ""),
        (501, "a", Unsupported, True, "lacks a request: HTTP 501, Code"),
        (505, "", Unsupported, True, "lacks a request: HTTP 505"),
        (409, "a", Conflict, False, "in progress: HTTP 409, Code"),
        (503, "a", StoreError, False, "fails: HTTP 503, Code"),
        (404, "a", FileNotFoundError, None, "box has no a"),
        (404, "", StoreError, True, "cannot be used: HTTP 404, Code: create it"),
        (301, "a", StoreError, True, "cannot be used: HTTP 301, Code: create it"),
        (307, "a", StoreError, True, "cannot be used"),
        (401, "a", StoreError, True, "denies access: HTTP 401, Code: log in"),
        (403, "", StoreError, True, "denies access: HTTP 403, Code: log in"),
        (400, "a", Refused, False, "refused a request: HTTP 400, Code"),
        (302, "a", Refused, False, "refused"),
    ],
)
def test_what_a_status_means(
    status: int, name: str, kind: type, denied: bool | None, said: str
) -> None:
    """A code that stands for a status has its meaning, whatever the status beside the code."""
    error = meaning(ADVICE, "box", status, "Code", name)
    assert (type(error), getattr(error, "denied", None)) == (kind, denied)
    assert said in str(error)
    by_code = meaning(ADVICE, "box", 418, "Code", name, meaning=status)
    assert (type(by_code), getattr(by_code, "denied", None)) == (kind, denied)
    assert str(by_code) == str(error).replace(f"HTTP {status}", "HTTP 418")
    assert "," not in str(meaning(ADVICE, "box", 503, "503")), "nothing is said twice"


@pytest.mark.parametrize("after, seconds", [("7", 7.0), ("0", 0.0), ("", 0.0), ("soon", 0.0)])
def test_how_long_a_server_asks_to_wait(after: str, seconds: float) -> None:
    error = meaning(ADVICE, "box", 503, retry_after=after)
    assert isinstance(error, StoreError) and error.retry_after == seconds


def test_a_page_that_denies_is_not_of_the_server() -> None:
    """A denial is not the server's own only if the response with its status is a web page."""
    page = {"Content-Type": "Text/HTML; charset=utf-8"}
    for status, headers, body, is_of_others in [
        (403, page, None, True),
        (403, page, b"<!doctype><HTML>", True),
        (403, page, b"Anonymous caller", False),
        (200, page, None, False),
        (403, {"Content-Type": "application/xml"}, None, False),
    ]:
        note_answer(status, headers, body)
        error = meaning(ADVICE, "box", 403)
        assert isinstance(error, StoreError)
        assert ("login page" in str(error), error.denied) == (is_of_others, not is_of_others)


# The libraries' errors


def of_s3(status: int, code: str, after: str = "") -> Exception:
    from botocore.exceptions import ClientError

    facts = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": after}}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": facts}, "GetObject")  # type: ignore[typeddict-item]


def of_google(status: int, code: str, after: str = "") -> Exception:
    from google.api_core.exceptions import from_http_status

    response: Any = SimpleNamespace(headers={"Retry-After": after})
    return from_http_status(status, "no", errors=[{"reason": code}], response=response)


def of_azure(status: int, code: str, after: str = "") -> Exception:
    from azure.core.exceptions import HttpResponseError

    response: Any = SimpleNamespace(
        status_code=status, reason="no", headers={"Retry-After": after}, content_type=""
    )
    error: Any = HttpResponseError("no", response=response)
    error.error_code = code
    return error  # type: ignore[no-any-return]


Errors = Callable[[str, str], AbstractContextManager[None]]
CLOUDS: dict[str, tuple[Errors, Callable[[int, str, str], Exception], Advice]] = {
    "s3": (s3_errors.s3_errors, of_s3, s3_errors.ADVICE),
    "gs": (google_errors, of_google, google.ADVICE),
    "az": (azure_errors, of_azure, azure.ADVICE),
}


def translated(cloud: str, error: Exception, name: str = "a") -> Exception:
    """Return the error that the program makes of a library's error."""
    with pytest.raises(Exception) as caught, CLOUDS[cloud][0]("box", name):
        raise error
    return caught.value


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    "status, name, kind, denied",
    [
        (403, "a", StoreError, True),
        (404, "a", FileNotFoundError, None),
        (404, "", StoreError, True),
        (503, "a", StoreError, False),
        (400, "a", Refused, False),
    ],
)
def test_what_a_library_says_of_an_answer(
    cloud: str, status: int, name: str, kind: type, denied: bool | None
) -> None:
    _, of, advice = CLOUDS[cloud]
    error = translated(cloud, of(status, "code", "9"), name)
    assert (type(error), getattr(error, "denied", None)) == (kind, denied)
    if isinstance(error, StoreError):
        assert f"HTTP {status}, code" in str(error)
        assert error.fix == {403: advice.credentials, 404: advice.place}.get(status, "")
        assert error.retry_after == (9.0 if status == 503 else 0.0)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_no_answer(cloud: str) -> None:
    """Errors of the program and of files are unchanged; the text of others may contain a secret."""
    from urllib3.exceptions import ProtocolError

    for error in (
        StoreError("ours", denied=True),
        FileNotFoundError("box has no a"),
        OSError(errno.ENOSPC, "full", "/cache/a"),
    ):
        assert translated(cloud, error) is error
    bug = RuntimeError("a bug")
    assert translated(cloud, bug) is bug
    losses: list[Exception] = [ConnectionResetError("secret"), TimeoutError("secret")]
    if cloud != "az":  # whose library has errors of its own for these
        losses += [ProtocolError("secret"), http.client.IncompleteRead(b"secret")]
    for lost in losses:
        told = translated(cloud, lost)
        assert isinstance(told, StoreError) and not told.denied
        assert f"cannot be reached: {type(lost).__name__}" in str(told)
        assert "secret" not in str(told)
    for odd in (
        KeyError("x"),
        TypeError("x"),
        ValueError("x"),
        AttributeError("x"),
        RecursionError(),
    ):
        told = translated(cloud, odd)
        assert isinstance(told, StoreError) and "does not speak its protocol" in str(told)


PLACE, CREDENTIALS = s3_errors.ADVICE.place, s3_errors.ADVICE.credentials


@pytest.mark.parametrize(
    "status, code, kind, fix",
    [
        *((404, code, StoreError, PLACE) for code in ("NoSuchBucket", "InvalidBucketName")),
        (403, "AllAccessDisabled", StoreError, PLACE),
        (400, "AuthorizationHeaderMalformed", StoreError, PLACE),
        (400, "IllegalLocationConstraintException", StoreError, PLACE),
        (301, "PermanentRedirect", StoreError, PLACE),
        *(
            (400, code, StoreError, CREDENTIALS)
            for code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
        ),
        (403, "RequestTimeTooSkewed", StoreError, "set the clock of this machine"),
        (400, "PreconditionFailed", Changed, None),
        (400, "NotImplemented", Unsupported, ""),
        (400, "ConditionalRequestConflict", Conflict, None),
        *(
            (400, code, StoreError, None)
            for code in ("RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody")
        ),
        (404, "NoSuchUpload", FileNotFoundError, None),
    ],
)
def test_a_code_of_s3_says_more_than_its_status(
    status: int, code: str, kind: type, fix: str | None
) -> None:
    """An error of a store whose fix is None is temporary."""
    error = translated("s3", of_s3(status, code))
    assert type(error) is kind
    if isinstance(error, StoreError):
        assert (error.fix, error.denied) == (fix or "", fix is not None)
        assert f"HTTP {status}, {code}" in str(error)


def test_an_upload_that_another_one_aborted_is_for_now() -> None:
    error = translated("s3", of_s3(404, "NoSuchUpload"), name="")
    assert isinstance(error, StoreError) and not error.denied
    assert "Another process aborted the upload" in str(error)


def test_what_boto3_says_without_an_answer() -> None:
    from botocore import exceptions as of_boto

    for none in (
        of_boto.NoCredentialsError(),
        of_boto.PartialCredentialsError(provider="env", cred_var="secret"),
        of_boto.CredentialRetrievalError(provider="x", error_msg="secret"),
        of_boto.ProfileNotFound(profile="secret"),
        of_boto.SSOTokenLoadError(error_msg="secret"),
        of_boto.TokenRetrievalError(provider="x", error_msg="secret"),
        of_boto.InvalidConfigError(error_msg="secret"),
        of_boto.ConfigParseError(path="secret"),
    ):
        told = translated("s3", none)
        assert isinstance(told, StoreError) and (told.denied, told.fix) == (True, CREDENTIALS)
        assert f"({type(none).__name__})" in str(told) and "secret" not in str(told)
    told = translated("s3", of_boto.ParamValidationError(report="Bucket"))
    assert isinstance(told, StoreError) and (told.denied, told.fix) == (True, PLACE)
    lost = of_boto.EndpointConnectionError(endpoint_url="secret", error=ConnectionRefusedError())
    told = translated("s3", lost)
    assert isinstance(told, StoreError) and not told.denied and "secret" not in str(told)
    assert "cannot be reached: ConnectionRefusedError" in str(told), "the cause, if it is known"


def test_what_google_s_library_says_without_an_answer() -> None:
    from google.api_core.exceptions import RetryError
    from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
    from google.resumable_media.common import DataCorruption, InvalidResponse

    for none in (DefaultCredentialsError("secret"), RefreshError("secret", retryable=False)):
        told = translated("gs", none)
        assert isinstance(told, StoreError) and "no usable credentials" in str(told)
        assert (told.denied, told.fix) == (True, google.ADVICE.credentials)
    for lost in (
        TransportError("secret"),
        RefreshError("secret", retryable=True),
        DataCorruption(None, "secret"),
        RetryError("repeated", ConnectionResetError("secret")),
    ):
        told = translated("gs", lost)
        assert isinstance(told, StoreError) and not told.denied
        assert "cannot be reached" in str(told) and "secret" not in str(told)
    in_vain = RetryError("repeated", of_google(503, "backendError", "9"))
    told = translated("gs", in_vain)
    assert isinstance(told, StoreError) and told.retry_after == 9.0 and "HTTP 503" in str(told)
    response = SimpleNamespace(status_code=404, headers={})
    assert isinstance(translated("gs", InvalidResponse(response)), FileNotFoundError)
    odd = translated("gs", of_google(400, "an odd reason: secret"))
    assert "HTTP 400" in str(odd) and "secret" not in str(odd), "a word, and no text, is shown"


def test_what_azure_s_library_says_without_an_answer() -> None:
    from azure.core.exceptions import (
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )

    refused: Any = SimpleNamespace(status_code=403, reason="no", headers={}, content_type="")
    told = translated("az", ClientAuthenticationError("secret", response=refused))
    assert isinstance(told, StoreError) and "denies access: HTTP 403" in str(told)
    none = translated("az", ClientAuthenticationError("secret"))
    assert isinstance(none, StoreError) and none.denied and "no usable credentials" in str(none)
    for lost in (
        HttpResponseError("secret"),
        ServiceRequestError("secret"),
        ServiceResponseError("secret"),
    ):
        told = translated("az", lost)
        assert isinstance(told, StoreError) and not told.denied
        assert "cannot be reached" in str(told) and "secret" not in str(told)
    for code in ("ContainerNotFound", "ContainerBeingDeleted", "InvalidResourceName"):
        told = translated("az", of_azure(409, code))
        assert isinstance(told, StoreError) and (told.denied, told.fix) == (
            True,
            azure.ADVICE.place,
        )
    for status in (200, 206, 301, 302, 303, 307):
        told = translated("az", of_azure(status, ""))
        assert isinstance(told, StoreError) and "does not speak its protocol" in str(told)


# What a user is told


@pytest.mark.parametrize(
    "error, kind, said",
    [
        (Changed(), "source_changed", "s3://box/m/a changed: it is another object"),
        (FileNotFoundError("box has no a"), "source_changed", "s3://box/m/a changed: it is gone"),
        (StoreError("it fails"), "network", "it fails (needed for s3://box/m/a)"),
        (ConnectionResetError("reset"), "network", "reset (needed for s3://box/m/a)"),
        (OSError(errno.ENOSPC, "full"), "disk_full", "s3://box/m/a"),
    ],
)
def test_what_ends_a_run_for_now(error: Exception, kind: str, said: str) -> None:
    told = explain_bucket_error(error, "s3://box/m", "s3://box/m/a")
    assert isinstance(told, Resumable)
    assert (told.reason, said in str(told)) == (kind, True)


def test_what_is_refused_for_good_and_what_is_a_bug() -> None:
    denied = StoreError("it denies", fix="log in", denied=True)
    told = explain_bucket_error(denied, "s3://box/m", "s3://box/m/a")
    assert isinstance(told, InputError)
    [problem] = told.problems
    assert (problem.where, problem.found, problem.fix) == ("s3://box/m", "it denies", "log in")
    of_cache = explain_bucket_error(
        FileNotFoundError(errno.ENOENT, "no such file", "/cache/a"), "s3://box/m", "s3://box/m/a"
    )
    assert isinstance(of_cache, InputError) and "/cache/a" in str(of_cache)
    assert explain_bucket_error(ValueError("a bug"), "s3://box/m", "s3://box/m/a") is None
