"""The machine and what is installed on it."""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from mbd import __version__
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
    "serve": "the HTTP interface and the exporter",
}
_LEAST_FREE = 1e9
_COMFORTABLE_FREE = 5e9


def python() -> Iterator[DoctorFinding]:
    """Report the Python interpreter."""
    found = f"{platform.python_version()} at {sys.executable}, {platform.platform()}"
    yield DoctorFinding("python", CheckState.OK, found)


def packages() -> Iterator[DoctorFinding]:
    """Compare what is installed with what the bare install and each extra need."""
    try:
        needed = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        to_do = "pip install -c constraints.txt -e ."
        yield DoctorFinding(
            "packages", CheckState.WARNING, f"{DISTRIBUTION} itself is on the path but not installed", to_do
        )
        return
    bare = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    yield _compare("packages", bare, DISTRIBUTION, missing=CheckState.FAILED)
    for extra, purpose in _EXTRAS.items():
        of_extra = [one for one in needed if one not in bare and one.marker and one.marker.evaluate({"extra": extra})]
        target = f"{DISTRIBUTION}[{extra}]"
        yield _compare(f"extra {extra}", of_extra, target, missing=CheckState.NOT_CONFIGURED, purpose=purpose)


def _compare(
    name: str, needed: list[Requirement], target: str, *, missing: CheckState, purpose: str | None = None
) -> DoctorFinding:
    to_do = f"pip install -c constraints.txt '{target}'" + (f" (for {purpose})" if purpose else "")
    installed = {one.name: _installed(one.name) for one in needed}
    absent = [package for package, found in installed.items() if found is None]
    if absent:
        return DoctorFinding(name, missing, f"not installed: {', '.join(absent)}", to_do)
    wrong = [
        f"{one.name} {found} (needed {one.specifier})"
        for one in needed
        if (found := installed[one.name]) and not one.specifier.contains(found, prereleases=True)
    ]
    if wrong:
        return DoctorFinding(name, CheckState.WARNING, f"unsupported versions: {', '.join(wrong)}", to_do)
    return DoctorFinding(name, CheckState.OK, ", ".join(f"{package} {found}" for package, found in installed.items()))


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_repository() -> Iterator[DoctorFinding]:
    """Report the git commit that results here are recorded with."""
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
    """Report the free disk space where results are written."""
    yield disk_space(shutil.disk_usage(Path.cwd()).free)


def disk_space(free: float) -> DoctorFinding:
    """Return the finding for a number of free bytes."""
    found = f"{free / 1e9:.1f} GB free in this folder"
    if free >= _COMFORTABLE_FREE:
        return DoctorFinding("disk", CheckState.OK, found)
    state = CheckState.WARNING if free >= _LEAST_FREE else CheckState.FAILED
    return DoctorFinding(
        "disk", state, found, "free some space: data, models and DVC's cache need 5 GB (`dvc gc` removes old data)"
    )


def bill_of_materials() -> dict[str, Any]:
    """Return every installed distribution as a software bill of materials, in CycloneDX 1.5 JSON.

    Sorted and without a time or a serial number, so that the same installation gives the same bytes.
    """
    found = {_normalised(entry): entry for entry in distributions()}
    parts = [_component(name, entry) for name, entry in sorted(found.items()) if name != DISTRIBUTION]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": DISTRIBUTION, "version": __version__}},
        "components": parts,
    }


def _component(name: str, entry: Distribution) -> dict[str, Any]:
    stated = entry.metadata.json
    licence = str(stated.get("license_expression") or stated.get("license") or "")
    # Some packages put the whole text of their licence where its name belongs.
    named = licence if "\n" not in licence and len(licence) < 80 else ""
    return {
        "type": "library",
        "name": name,
        "version": entry.version,
        "purl": f"pkg:pypi/{name}@{entry.version}",
        **({"licenses": [{"license": {"name": named}}]} if named else {}),
    }


def _normalised(entry: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", entry.metadata["Name"]).lower()
