"""The verdicts on a certificate: for each the word, what it means, what to do, the exit code and how grave it is.

Command line, JSON, pages, console, metrics and alerts read this table. The word is the key, in capital letters where it
stands alone. Those who rely on a certificate rely on `verified` alone; no other verdict admits a model to serving.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mbd.errors import ExitCode

Decision = Literal["verified", "replaced", "not verified", "withdrawn", "forged or damaged"]
Severity = Literal["good", "note", "warning", "critical"]
"""how a verdict is coloured and how loud an alert is"""


@dataclass(frozen=True)
class VerdictRules:
    """What one verdict means."""

    sentence: str
    """for a person who reads nothing else"""
    to_do: str
    exit_code: ExitCode
    severity: Severity
    ended: bool = False
    """whether the log says that the certificate is in force no longer, so that no audit of its model is due"""


VERDICTS: Mapping[Decision, VerdictRules] = {
    "verified": VerdictRules(
        sentence="The certificate is genuine and in force.",
        to_do="Read what is guaranteed, and under which assumptions.",
        exit_code=ExitCode.DONE,
        severity="good",
    ),
    "replaced": VerdictRules(
        sentence="The certificate is genuine, and what it says of its model is still true. The model was replaced by "
        "one that keeps what was deleted.",
        to_do="Verify the certificate of the current model, which is named here.",
        exit_code=ExitCode.REPLACED,
        severity="note",
        ended=True,
    ),
    "not verified": VerdictRules(
        sentence="Something is missing, so it is not known whether the certificate can be relied on.",
        to_do="Get what is missing, and verify again.",
        exit_code=ExitCode.NOT_VERIFIED,
        severity="warning",
    ),
    "withdrawn": VerdictRules(
        sentence="The certificate was withdrawn: what it says of its model may be wrong.",
        to_do="Do not rely on it. Ask the issuer for the one that takes its place.",
        exit_code=ExitCode.WITHDRAWN,
        severity="critical",
        ended=True,
    ),
    "forged or damaged": VerdictRules(
        sentence="This is not what the issuer signed, or it contradicts itself.",
        to_do="Do not rely on it. Get certificate and files again from the issuer.",
        exit_code=ExitCode.FORGED,
        severity="critical",
    ),
}
"""the verdicts, the worst last: of several that apply to a certificate, the last one decides"""
DECISIONS: tuple[Decision, ...] = tuple(VERDICTS)
