"""The machine and what is installed on it."""

import operator
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from mbd.doctor.finding import ANSWER_SECONDS, CheckState, DoctorFinding
from mbd.errors import MbdError
from mbd.git import git

DISTRIBUTION = "missing-by-design"
_EXTRAS = {
    "train": "training, deletion and attacks",
    "privacy": "certified deletion and its budget",
    "data": "DVC, S3 and .csd files",
    "pipelines": "Kubeflow",
    "extract": "features from raw media",
}
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(\[[^\]]*\])?\s*(?P<versions>[^;]*)(;.*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"])?"
)
_CLAUSE = re.compile(r"(?P<relation>[<>=!]=|[<>])\s*(?P<version>[\w.+]+)")
_RELATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_LEAST_FREE = 1e9
_COMFORTABLE_FREE = 5e9


def python() -> Iterator[DoctorFinding]:
    """Tell which Python this is."""
    found = f"{platform.python_version()} at {sys.executable}, {platform.platform()}"
    yield DoctorFinding("python", CheckState.OK, found)


def packages() -> Iterator[DoctorFinding]:
    """Compare what is installed with what the bare install and each extra need."""
    try:
        needed = [match for line in requires(DISTRIBUTION) or () if (match := _REQUIREMENT.match(line))]
    except PackageNotFoundError:
        to_do = "pip install -c constraints.txt -e ."
        yield DoctorFinding(
            "packages", CheckState.WARNING, f"{DISTRIBUTION} itself is not installed, only on the path", to_do
        )
        return
    yield _compare("packages", [m for m in needed if not m["extra"]], DISTRIBUTION, missing=CheckState.FAILED)
    for extra, purpose in _EXTRAS.items():
        of_extra = [match for match in needed if match["extra"] == extra]
        target = f"{DISTRIBUTION}[{extra}]"
        yield _compare(f"extra {extra}", of_extra, target, missing=CheckState.NOT_CONFIGURED, purpose=purpose)


def _compare(
    name: str, needed: list[re.Match[str]], target: str, *, missing: CheckState, purpose: str | None = None
) -> DoctorFinding:
    to_do = f"pip install -c constraints.txt '{target}'" + (f" (for {purpose})" if purpose else "")
    installed = {match["name"]: _installed(match["name"]) for match in needed}
    absent = [package for package, found in installed.items() if found is None]
    if absent:
        return DoctorFinding(name, missing, f"not installed: {', '.join(absent)}", to_do)
    wrong = [
        f"{match['name']} {found} (needed {match['versions'].strip()})"
        for match in needed
        if (found := installed[match["name"]]) and not satisfies(found, match["versions"])
    ]
    if wrong:
        return DoctorFinding(name, CheckState.WARNING, f"other versions than asked for: {', '.join(wrong)}", to_do)
    return DoctorFinding(name, CheckState.OK, ", ".join(f"{package} {found}" for package, found in installed.items()))


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def satisfies(found: str, versions: str) -> bool:
    """Tell whether a version meets clauses like `>=2.0,<3`; only release numbers count."""
    return all(
        _RELATIONS[clause["relation"]](_release(found), _release(clause["version"]))
        for clause in _CLAUSE.finditer(versions)
    )


def _release(text: str) -> tuple[int, ...]:
    numbers = re.match(r"[\d.]*", text)
    parts = [int(part) for part in (numbers[0] if numbers else "").split(".") if part]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def git_repository() -> Iterator[DoctorFinding]:
    """Tell which commit the work here would be recorded with."""
    try:
        tool = git("--version", timeout=ANSWER_SECONDS).stdout.strip()
        commit = git("rev-parse", "--short=12", "HEAD", timeout=ANSWER_SECONDS)
        changed = git("status", "--porcelain", timeout=ANSWER_SECONDS)
    except (MbdError, subprocess.TimeoutExpired) as error:
        yield DoctorFinding(
            "git", CheckState.WARNING, str(error).splitlines()[0], "install git; revisions cannot be recorded"
        )
        return
    if commit.returncode != 0:
        found = f"{tool}, but this folder has no commit"
        yield DoctorFinding("git", CheckState.WARNING, found, "run from a clone, so that results carry their revision")
        return
    count = len(changed.stdout.splitlines())
    yield DoctorFinding("git", CheckState.OK, f"{tool}, commit {commit.stdout.strip()}, {count or 'no'} changed files")


def disk() -> Iterator[DoctorFinding]:
    """Tell how much room is left where results are written."""
    yield room(shutil.disk_usage(Path.cwd()).free)


def room(free: float) -> DoctorFinding:
    """Judge an amount of free bytes."""
    found = f"{free / 1e9:.1f} GB free in this folder"
    if free >= _COMFORTABLE_FREE:
        return DoctorFinding("disk", CheckState.OK, found)
    state = CheckState.WARNING if free >= _LEAST_FREE else CheckState.FAILED
    return DoctorFinding(
        "disk", state, found, "make room: data, models and DVC's cache want 5 GB (`dvc gc` removes old data)"
    )
