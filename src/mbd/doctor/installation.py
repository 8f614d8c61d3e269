"""The machine and what is installed on it: checks, and the bill of materials."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import Distribution, PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mbd import __version__
from mbd.errors import MbdError, MissingExtraError, installation_hint
from mbd.git import git

ANSWER_SECONDS = 3.0
"""longest wait for a server's answer"""


class CheckState(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CONFIGURED = "not configured"


OK, WARNING, FAILED, NOT_CONFIGURED = CheckState


@dataclass(frozen=True)
class DoctorFinding:
    """What one check found, and what to do about it."""

    name: str
    state: CheckState
    found: str
    to_do: str | None = None


DISTRIBUTION = "missing-by-design"
_EXTRAS = {
    "train": "training, deletion and attacks",
    "privacy": "certified deletion and its budget",
    "data": "DVC, S3 and .csd files",
    "pipelines": "Kubeflow",
    "extract": "features from raw media",
    "serve": "the HTTP interface and the exporter",
    "mlflow": "models of an MLflow registry",
    "dev": "tests, linters and this handbook",
}
_LEAST_FREE = 1e9
_COMFORTABLE_FREE = 5e9


def check_python() -> Iterator[DoctorFinding]:
    """Report the Python interpreter."""
    yield DoctorFinding("python", OK, f"{platform.python_version()} at {sys.executable}, {platform.platform()}")


def check_packages() -> Iterator[DoctorFinding]:
    """Compare what is installed with what the bare install and each extra need."""
    try:
        needed = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        found = f"{DISTRIBUTION} itself is on the path but not installed"
        yield DoctorFinding("packages", WARNING, found, installation_hint())
        return
    bare = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    yield _compare("packages", bare, FAILED, installation_hint())
    for extra, purpose in _EXTRAS.items():
        added = [each for each in needed if each not in bare and each.marker and each.marker.evaluate({"extra": extra})]
        to_do = f"{installation_hint(extra)} (for {purpose})"
        yield _compare(f"extra {extra}", added, NOT_CONFIGURED, to_do)


def _compare(name: str, needed: list[Requirement], missing: CheckState, to_do: str) -> DoctorFinding:
    installed = {each.name: _installed(each.name) for each in needed}
    absent = [package for package, found in installed.items() if found is None]
    if absent:
        return DoctorFinding(name, missing, f"not installed: {', '.join(absent)}", to_do)
    wrong = [
        f"{each.name} {found} (needed {each.specifier})"
        for each in needed
        if (found := installed[each.name]) and not each.specifier.contains(found, prereleases=True)
    ]
    if wrong:
        return DoctorFinding(name, WARNING, f"unsupported versions: {', '.join(wrong)}", to_do)
    return DoctorFinding(name, OK, ", ".join(f"{package} {found}" for package, found in installed.items()))


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_git() -> Iterator[DoctorFinding]:
    """Report the git commit that results here are recorded with."""
    try:
        tool = git("--version", timeout=ANSWER_SECONDS).stdout.strip()
        commit = git("rev-parse", "--short=12", "HEAD", timeout=ANSWER_SECONDS)
        changed = git("status", "--porcelain", timeout=ANSWER_SECONDS)
    except (MbdError, subprocess.TimeoutExpired) as error:
        yield DoctorFinding("git", WARNING, str(error).splitlines()[0], "install git; revisions cannot be recorded")
        return
    if commit.returncode != 0:
        to_do = "`git init`, and commit what you run, so that results carry their revision"
        yield DoctorFinding("git", WARNING, f"{tool}, but this folder has no commit", to_do)
        return
    count = len(changed.stdout.splitlines())
    yield DoctorFinding("git", OK, f"{tool}, commit {commit.stdout.strip()}, {count or 'no'} changed files")


def check_disk(free: float | None = None) -> Iterator[DoctorFinding]:
    """Report the free disk space where results are written; `free`: bytes to judge instead."""
    free = shutil.disk_usage(Path.cwd()).free if free is None else free
    state = FAILED if free < _LEAST_FREE else WARNING if free < _COMFORTABLE_FREE else OK
    to_do = "free some space: data, models and DVC's cache need 5 GB (`dvc gc` removes old data)"
    yield DoctorFinding("disk", state, f"{free / 1e9:.1f} GB free in this folder", None if state is OK else to_do)


def check_device(wanted: str) -> Iterator[DoctorFinding]:
    """Report the device that training would use with `training.device` = `wanted` (auto, cpu or cuda)."""
    try:
        import torch  # noqa: PLC0415 -- takes seconds
    except ImportError:
        yield DoctorFinding("device", NOT_CONFIGURED, "torch is not installed", MissingExtraError("torch").hint)
        return
    found = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
        unused = " (training.device=cpu does not use it)" if wanted == "cpu" else ""
        yield DoctorFinding("device", OK, f"{found}, CUDA {torch.version.cuda}: {names}{unused}")
    elif wanted == "cuda":
        to_do = "set training.device=auto, or install a GPU driver and a torch built for CUDA"
        yield DoctorFinding("device", FAILED, f"{found}, and no GPU though training.device=cuda", to_do)
    else:
        yield DoctorFinding("device", OK, f"{found}, CPU only")


def bill_of_materials() -> dict[str, Any]:
    """Return every installed distribution as a software bill of materials, in CycloneDX 1.5 JSON.

    Sorted and without a time or a serial number, so that the same installation gives the same bytes.
    """
    by_name = {canonicalize_name(entry.metadata["Name"]): entry for entry in distributions()}
    parts = [_component(name, entry) for name, entry in sorted(by_name.items()) if name != DISTRIBUTION]
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
