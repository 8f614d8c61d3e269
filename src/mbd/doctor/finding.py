"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum

ANSWER_SECONDS = 3.0
"""longest wait for a server's answer"""


class CheckState(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True)
class DoctorFinding:
    """What one check found, and what to do about it."""

    name: str
    state: CheckState
    found: str
    to_do: str | None = None
