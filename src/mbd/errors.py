"""Every error that a user can meet, and the exit code it ends with.

An error names what is wrong and, where they apply, the file, the key and the value that are wrong, and a hint. Commands
and tasks print ``str(error)`` and exit with ``error.exit_code``; nothing else decides an exit code.
"""

from enum import IntEnum
from pathlib import Path
from typing import ClassVar


class ExitCode(IntEnum):
    """How a command ends."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    REFUSED = 3
    UNVERIFIED = 4
    BAD_DATA = 5
    INTERRUPTED = 130


EXIT_CODES = (
    "0 done, 1 failure, 2 wrong usage or parameters, 3 refused by the gate or the budget, 4 verification failed, "
    "5 bad data, 130 interrupted"
)
"""the exit codes as help texts and documentation list them"""


class MbdError(Exception):
    """A failure that the user can act on."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        key: str | None = None,
        value: object = None,
        hint: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.key = key
        self.value = value
        self.hint = hint
        super().__init__(problem)

    def __str__(self) -> str:
        facts = [("file", self.file), ("key", self.key), ("value", self.value), ("hint", self.hint)]
        return "\n".join([self.problem, *(f"  {name}: {fact}" for name, fact in facts if fact is not None)])


class UsageError(MbdError):
    """The command line or the parameters are wrong."""

    exit_code = ExitCode.USAGE


class DataError(MbdError):
    """The given data are not valid."""

    exit_code = ExitCode.BAD_DATA


class GateRefusedError(MbdError):
    """The evidence does not support the claim, so there is no certificate."""

    exit_code = ExitCode.REFUSED


class VerificationError(MbdError):
    """A signature, a digest or a claim does not hold."""

    exit_code = ExitCode.UNVERIFIED


class MissingExtraError(MbdError):
    """An optional package that is needed here is not installed."""

    def __init__(self, needed_for: str, extra: str, package: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package}, which is not installed",
            hint=f"pip install -c constraints.txt 'missing-by-design[{extra}]'",
        )
