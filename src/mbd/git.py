"""Calls of the user's git, without prompts. Credentials in a URL are passed in the environment, never in a file."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

from mbd.errors import DataError, MbdError, UsageError
from mbd.urls import without_credentials

_LOGIN_REFUSED = re.compile(
    r"authentication|permission denied|access denied|could not read (username|password)|\b40[13]\b", re.IGNORECASE
)
_STALLED_SECONDS = 30


def git(
    *arguments: str, settings: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run git with `settings` (those of `git config`), which only this process sees and which are not stored."""
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    first = int(environment.get("GIT_CONFIG_COUNT", "0"))
    for n, (key, value) in enumerate((settings or {}).items(), first):
        environment |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value, "GIT_CONFIG_COUNT": str(n + 1)}
    try:
        return subprocess.run(  # noqa: S603 -- no shell
            ["git", *arguments],  # noqa: S607 -- the user's git, from PATH
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
        )
    except FileNotFoundError:
        raise MbdError("git is not installed", hint="install git") from None


def read_objects(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the content of objects of the repository at `folder`, read by one process; missing ones are skipped."""
    with TemporaryFile() as wanted:
        wanted.writelines(f"{name}\n".encode() for name in names)
        wanted.seek(0)
        command = ["git", "-C", str(folder), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=wanted, stdout=subprocess.PIPE) as process:  # noqa: S603 -- no shell
            while process.stdout and (head := process.stdout.readline().split()):
                if len(head) == len(("name", "type", "size")):
                    content = process.stdout.read(int(head[2]))
                    process.stdout.read(1)
                    yield head[0].decode(), content


def clone(repository: str, folder: Path) -> None:
    """Clone the history of `repository` into `folder`, without checking out files."""
    shown = without_credentials(repository)
    try:
        urlsplit(repository).port  # noqa: B018 -- raises ValueError if the port is not a number
    except ValueError:
        raise UsageError(
            "the URL of the repository is not valid",
            hint="write special characters of its user or password as %XX",
        ) from None
    # Give up on a server that stops sending.
    settings = {"http.lowSpeedLimit": "1", "http.lowSpeedTime": str(_STALLED_SECONDS)}
    if shown != repository:
        settings[f"url.{repository}.insteadOf"] = shown
    done = git("clone", "--quiet", "--no-checkout", "--", shown, str(folder), settings=settings)
    if done.returncode == 0:
        return
    lines = without_credentials(done.stderr).strip().splitlines()
    reason = lines[-1].removeprefix("fatal: ") if lines else "git gave no reason"
    if _LOGIN_REFUSED.search(reason):
        raise DataError(
            f"the git repository refused the credentials: {reason}",
            value=shown,
            hint="use credentials with read access: a credential helper, an SSH key, or user:token@ in the URL",
        )
    raise DataError(
        f"the git repository cannot be reached: {reason}",
        value=shown,
        hint="check the URL; `git ls-remote URL` must work on this machine",
    )


def resolve(folder: Path, rev: str) -> str:
    """Return the full commit that `rev` (branch, tag, commit, `HEAD`) names in the repository at `folder`."""
    for name in (rev, f"origin/{rev}"):
        done = git("-C", str(folder), "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode == 0:
            return done.stdout.strip()
        if "dubious ownership" in done.stderr or "not a git repository" in done.stderr:
            raise DataError(f"git cannot open the repository: {done.stderr.strip()}", file=folder)
    raise UsageError(
        "the repository has no such revision",
        value=rev,
        hint="give a branch, a tag or a commit that has been pushed",
    )
