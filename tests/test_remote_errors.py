"""Where to look, read from chains of exceptions as DVC, s3fs and boto3 raise them."""

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, NoCredentialsError

from mbd.remote_errors import Trouble, trouble_with


def _s3(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "said the server"}}, "HeadBucket")


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (NoCredentialsError(), Trouble.CREDENTIALS),
        (_s3("SignatureDoesNotMatch"), Trouble.CREDENTIALS),
        (PermissionError("Forbidden"), Trouble.CREDENTIALS),
        (_s3("NoSuchBucket"), Trouble.NO_BUCKET),
        (_s3("RequestTimeTooSkewed"), Trouble.CLOCK),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), Trouble.UNREACHABLE),
        (ConnectionClosedError(endpoint_url="http://127.0.0.1:9"), Trouble.UNREACHABLE),
        (ConnectionRefusedError("refused"), Trouble.UNREACHABLE),
        (FileNotFoundError("files/md5/00/00"), Trouble.NOT_THERE),
        (ValueError("something else"), Trouble.OTHER),
    ],
)
def test_the_cause_counts_however_deep_it_lies(cause: Exception, expected: Trouble) -> None:
    outer = RuntimeError("failed to load directory")
    outer.__cause__ = OSError("wrapped once more")
    outer.__cause__.__context__ = cause
    trouble, reason = trouble_with(outer)
    assert trouble is expected
    assert reason == str(cause)


def test_a_bare_404_is_about_the_bucket_only_if_a_bucket_was_asked_for() -> None:
    assert trouble_with(_s3("404"), bucket_asked=True)[0] is Trouble.NO_BUCKET
    assert trouble_with(_s3("404"))[0] is Trouble.OTHER


def test_reasons_carry_no_credentials() -> None:
    assert trouble_with(ValueError("no http://user:s3cret@host/x"))[1] == "no http://host/x"
