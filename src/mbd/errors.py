"""Every error that a user can meet, and the exit code it ends with.

An error names what is wrong and, where they apply, the file, the key and the value that are wrong, and a hint. Commands
and tasks print ``str(error)`` and exit with ``error.exit_code``; nothing else decides an exit code.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
    REPLACED = 41
    WITHDRAWN = 42
    NOT_VERIFIED = 43
    FORGED = 44
    INTERRUPTED = 130


EXIT_CODES = (
    "0 done, 1 failure, 2 wrong usage or parameters, 3 refused by the gate or the budget, 4 verification failed, "
    "5 bad data, 41 replaced, 42 withdrawn, 43 not verified, 44 forged or damaged, 130 interrupted"
)
"""the exit codes as help texts and documentation list them; 41 to 44 are verdicts (:mod:`mbd.formats.verdict`)"""


def describe_exit(code: ExitCode) -> str:
    """Return the meaning of an exit code, as documented."""
    meanings = dict(entry.split(" ", 1) for entry in EXIT_CODES.split(", "))
    return meanings[str(int(code))]


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


@contextmanager
def naming(file: Path | str | None, hint: str | None = None) -> Iterator[None]:
    """Within: a DataError that names no file, or has no hint, gets this one."""
    try:
        yield
    except DataError as error:
        error.file, error.hint = error.file or file, error.hint or hint
        raise


class GateRefusedError(MbdError):
    """The evidence does not support the claim, so there is no certificate."""

    exit_code = ExitCode.REFUSED


class VerificationError(MbdError):
    """A signature, a digest or a claim does not hold."""

    exit_code = ExitCode.UNVERIFIED


class MissingExtraError(MbdError):
    """An optional package that is needed here is not installed."""

    def __init__(self, module: str) -> None:
        top = module.partition(".")[0]
        package = _PACKAGES.get(top, top)
        super().__init__(
            f"this needs the package {package}, which is not installed",
            hint=installation_hint(_extra_with(package)),
        )


@contextmanager
def extras_named() -> Iterator[None]:
    """Within: that a package is not installed becomes an error that names the extra which brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "mbd":
            raise
        raise MissingExtraError(error.name) from error


_PACKAGES = {"botocore": "boto3", "jwt": "pyjwt", "mlflow": "mlflow-skinny", "sklearn": "scikit-learn"}
"""modules whose packages have other names"""


def installation_hint(extra: str = "") -> str:
    """Return how to install this package with an extra: from its clone, from its wheel, or in its image."""
    import json  # noqa: PLC0415 -- seldom needed
    from importlib.metadata import Distribution, PackageNotFoundError  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415
    from shlex import quote  # noqa: PLC0415

    what = f"[{extra}]" if extra else ""
    clone = Path(__file__).parents[2]
    if (clone / "constraints.txt").exists():
        return f"pip install -c {quote(f'{clone}/constraints.txt')} -e {quote(f'{clone}{what}')}"
    if not find_spec("pip"):  # as in our images
        return f"build an image that has it: EXTRAS={extra or 'train'} docker/build-images cpu"
    try:
        origin = json.loads(Distribution.from_name("missing-by-design").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    source = f" @ {origin['url']}" if "url" in origin else ""
    return f"pip install {quote(f'missing-by-design{what}{source}')}"


def _extra_with(package: str) -> str:
    """Return the extra of this distribution that brings a package, or all of them."""
    from importlib.metadata import metadata, requires  # noqa: PLC0415 -- slow, and seldom needed

    from packaging.requirements import Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    package = canonicalize_name(package)
    for requirement in map(Requirement, requires("missing-by-design") or []):
        if canonicalize_name(requirement.name) == package and requirement.marker:
            extras = metadata("missing-by-design").get_all("Provides-Extra") or []
            return next((extra for extra in extras if requirement.marker.evaluate({"extra": extra})), "all")
    return "all"
