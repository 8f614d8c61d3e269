"""Data keys wrapped by AWS KMS or a compatible service.

Credentials, region and endpoint come only from the standard AWS chain (environment, profile, role;
AWS_ENDPOINT_URL_KMS). The permissions kms:Encrypt and kms:Decrypt on the key are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from mbd.errors import MbdError
from mbd.shredding.wrapper import Context, UnwrapError

_NOT_OURS = {"InvalidCiphertextException", "IncorrectKeyException"}
_SETTINGS = Config(connect_timeout=10, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})


class KmsWrapper:
    """Wraps data keys with a key that never leaves the KMS."""

    def __init__(self, key: str) -> None:
        self.key = key

    def wrap(self, secret: bytes, context: Context) -> bytes:
        """Return the data key, encrypted by the KMS."""
        with self._kms_errors():
            answer = self._client().encrypt(KeyId=self.key, Plaintext=secret, EncryptionContext=dict(context))
            return bytes(answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        """Return the data key, decrypted by the KMS."""
        with self._kms_errors():
            answer = self._client().decrypt(KeyId=self.key, CiphertextBlob=wrapped, EncryptionContext=dict(context))
            return bytes(answer["Plaintext"])

    def _client(self) -> Any:  # noqa: ANN401 -- boto3 has no types
        return boto3.Session().client("kms", config=_SETTINGS)

    @contextmanager
    def _kms_errors(self) -> Iterator[None]:
        uri = f"awskms:{self.key}"
        try:
            yield
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NOT_OURS:
                raise UnwrapError(uri) from error
            raise self._failed(uri, error) from error
        except BotoCoreError as error:
            raise self._failed(uri, error) from error

    @staticmethod
    def _failed(uri: str, error: Exception) -> MbdError:
        return MbdError(
            f"the KMS failed to wrap or unwrap a data key: {error}",
            key="shredding.wrapper",
            value=uri,
            hint="check credentials, AWS_DEFAULT_REGION, the state of the key, and kms:Encrypt, kms:Decrypt",
        )
