"""Requests that are refused: the status of the answer, the reason for metrics, and a sentence for the client."""

from http import HTTPStatus
from typing import Literal

from mbd.errors import MbdError

Reason = Literal[
    "malformed",
    "too_large",
    "unknown_model",
    "invalid_input",
    "revoked_modality",
    "unavailable",
    "overloaded",
    "failed",
]
_STATUS: dict[Reason, HTTPStatus] = {
    "malformed": HTTPStatus.BAD_REQUEST,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unknown_model": HTTPStatus.NOT_FOUND,
    "invalid_input": HTTPStatus.UNPROCESSABLE_ENTITY,
    "revoked_modality": HTTPStatus.UNPROCESSABLE_ENTITY,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "failed": HTTPStatus.INTERNAL_SERVER_ERROR,
}
MEDIA_TYPE = "application/problem+json"
_LONGEST = 100


class InferenceError(MbdError):
    """An inference request that is refused."""

    def __init__(
        self,
        reason: Reason,
        problem: str,
        *,
        key: str | None = None,
        value: object = None,
        hint: str | None = None,
        certificate: str | None = None,
    ) -> None:
        super().__init__(problem, key=key, value=value, hint=hint)
        self.reason: Reason = reason
        self.certificate = certificate
        """SHA-256 of the certificate because of which it is refused"""

    @property
    def status(self) -> HTTPStatus:
        """Status of the answer."""
        return _STATUS[self.reason]

    def to_plain(self) -> dict[str, str | int]:
        """Return the body of the answer: a problem (RFC 9457) with the member `error`, which the protocol asks for."""
        problem: dict[str, str | int] = {
            "type": f"urn:missing-by-design:problem:{self.reason.replace('_', '-')}",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.problem,
            "error": self.problem,
            "reason": self.reason,
        }
        facts = {"key": self.key, "value": self.value, "hint": self.hint, "certificate": self.certificate}
        return problem | {name: str(fact) for name, fact in facts.items() if fact is not None}


def invalid(error: MbdError) -> InferenceError:
    """Return the refusal of an input that the model does not take."""
    return InferenceError("invalid_input", error.problem, key=error.key, value=error.value, hint=error.hint)


def shown(text: object) -> str:
    """Return something that a client has sent, short enough for an error message."""
    plain = str(text)
    return repr(plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…")
