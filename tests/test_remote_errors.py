"""Where to look, read from chains of exceptions as DVC, s3fs and boto3 raise them."""

from email.message import Message
from urllib.error import HTTPError

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, NoCredentialsError

from mbd.remote_errors import ErrorKind, classify_error, is_transient


def _s3(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "said the server"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "HeadBucket")


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (NoCredentialsError(), ErrorKind.CREDENTIALS),
        (_s3("SignatureDoesNotMatch"), ErrorKind.CREDENTIALS),
        (PermissionError("Forbidden"), ErrorKind.CREDENTIALS),
        (_s3("NoSuchBucket"), ErrorKind.NO_BUCKET),
        (_s3("RequestTimeTooSkewed"), ErrorKind.CLOCK),
        (_s3("XMinioStorageFull"), ErrorKind.FULL),
        (_s3("Unknown", 507), ErrorKind.FULL),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), ErrorKind.UNREACHABLE),
        (ConnectionClosedError(endpoint_url="http://127.0.0.1:9"), ErrorKind.UNREACHABLE),
        (ConnectionRefusedError("refused"), ErrorKind.UNREACHABLE),
        (FileNotFoundError("files/md5/00/00"), ErrorKind.NOT_THERE),
        (ValueError("something else"), ErrorKind.OTHER),
    ],
)
def test_the_cause_counts_however_deep_it_lies(cause: Exception, expected: ErrorKind) -> None:
    outer = RuntimeError("failed to load directory")
    outer.__cause__ = OSError("wrapped once more")
    outer.__cause__.__context__ = cause
    kind, reason = classify_error(outer)
    assert kind is expected
    assert reason == str(cause)


def test_a_bare_404_is_about_the_bucket_only_if_a_bucket_was_asked_for() -> None:
    assert classify_error(_s3("404"), bucket_asked=True)[0] is ErrorKind.NO_BUCKET
    assert classify_error(_s3("404"))[0] is ErrorKind.OTHER


def test_reasons_carry_no_credentials() -> None:
    assert classify_error(ValueError("no http://user:s3cret@host/x"))[1] == "no http://host/x"


def test_a_service_that_is_away_or_fails_may_come_back() -> None:
    gateway = HTTPError("http://gateway", 503, "as asked", Message(), None)
    answers = (_s3("SlowDown", 503), _s3("InternalError", 500), gateway)
    transient = (ConnectionRefusedError("refused"), TimeoutError(), *answers)
    assert [is_transient(error) for error in transient] == [True] * 5
    lasting = (_s3("AccessDenied", 403), _s3("NoSuchBucket", 404), _s3("Unknown", 507), ValueError("something else"))
    assert [is_transient(error) for error in lasting] == [False] * 4
