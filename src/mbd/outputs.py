"""The output of a step: a folder that appears whole or not at all, with its `step.json`.

    with step_run("delete", out, {"deletion": params.deletion}, model=model) as step:
        …                                              # write into step.folder

The folder is written under a temporary name beside `out`, synced to disk, and renamed. A killed writer leaves only a
folder named `.NAME.partial.*`, which the next writer of the same output removes.

`step.json` holds the digests of inputs and outputs, the parameters used, versions, and the duration. It is the one file
of a folder that differs between two runs of the same thing, so digests of folders leave it out.
"""

import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mbd import __version__, tombstones
from mbd.errors import DataError, UsageError
from mbd.files import (
    STEP_FILE,
    canonical_digest,
    errors_naming,
    file_digests,
    locked,
    read_json,
    sha256_file,
    sync,
    to_json,
    write_file,
)

OBSERVERS: ContextVar[tuple[Callable[[Path], object], ...]] = ContextVar("observers", default=())
"""each is called with every folder that a step has written"""
_VERSIONED = ("numpy", "safetensors", "pydantic", "torch", "transformers", "dvc", "kfp")
_version = cache(version)  # reads and parses a file for each package


@dataclass
class StepRun:
    """A running step: write into `folder`, and note what belongs into `step.json`."""

    folder: Path
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    known_digests: dict[str, str] = field(default_factory=dict)
    """digests of output files that the step has computed anyway"""
    look_at: str = ""
    """the output file that a person should open first"""
    phases: dict[str, float] = field(default_factory=dict)
    """seconds that parts of the step took, where that is of interest"""

    def read(self, name: str, path: Path) -> None:
        """Record an input file or folder with its digest."""
        if not path.exists():
            raise DataError("there is no such file or folder", file=path, key=f"--{name}", hint="correct its path")
        files = file_digests(path) if path.is_dir() else {path.name: sha256_file(path)}
        tombstones.refuse(files.values(), path, "use what was made after the modality was revoked")
        digest = canonical_digest(files) if path.is_dir() else files[path.name]
        self.inputs[name] = {"path": str(path), "digest": digest}


@contextmanager
def step_run(name: str, out: Path, params: Mapping[str, BaseModel], **inputs: Path) -> Iterator[StepRun]:
    """Run the step `name`: yield a :class:`StepRun`, and on success let its folder become `out`.

    `params` are the sections of the parameters that the step uses, by name.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    with whole_folder(out, name) as folder:
        run = StepRun(folder)
        for key, path in inputs.items():
            run.read(key, path)
        yield run
        used = {section: model.model_dump(mode="json") for section, model in params.items()}
        files = file_digests(folder, run.known_digests)
        tombstones.refuse(files.values(), out, "make it without the revoked modality")
        record = {
            "step": name,
            "inputs": run.inputs,
            "parameters": used,
            "parameters_digest": canonical_digest(used),
            "outputs": {"digest": canonical_digest(files), "files": files},
            "look_at": run.look_at,
            "versions": versions(),
            "started": started.isoformat(timespec="seconds"),
            "duration_seconds": round(time.perf_counter() - clock, 3),
            **({"phases_seconds": {name: round(s, 6) for name, s in run.phases.items()}} if run.phases else {}),
        }
        write_file(folder / STEP_FILE, to_json(record))
    for observe in OBSERVERS.get():
        observe(out)


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of those that results depend on."""
    installed = {"mbd": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in _VERSIONED:
        try:
            installed[package] = _version(package)
        except PackageNotFoundError:
            continue
    return installed


def read_step(folder: Path, step: str | None = None) -> dict[str, Any]:
    """Return the `step.json` of a folder after checking that its files are those that the step wrote.

    A DataError if it was not written by this step (None: any), or a file in it was changed, added or removed since.
    """
    file, hint = folder / STEP_FILE, f"run `mbd {step}` again" if step else "run the step again"
    try:
        record: dict[str, Any] = read_json(file)
        writer, written = record["step"], dict(record["outputs"]["files"])
    except OSError as error:
        raise DataError("the folder is not the output of a step", file=file, hint=hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("the record of the step is not valid", file=file, hint=hint) from error
    if step not in (None, writer):
        raise DataError(f"the folder is not an output of `mbd {step}`", file=file, key="step", value=writer, hint=hint)
    now = file_digests(folder)
    if changed := sorted(name for name in {*written, *now} if written.get(name) != now.get(name)):
        name = changed[0]
        raise DataError(
            "the file is not what the step wrote",
            file=folder / name,
            value=f"sha256 {now.get(name, 'none: the file is missing')}, written {written.get(name, 'no such file')}",
            hint=hint,
        )
    return record


@contextmanager
def whole_folder(out: Path, step: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out` on success and is removed on failure.

    An existing `out` is replaced only if it is empty or if the same step wrote it, according to its `step.json`.
    """
    _check_replaceable(out, step)
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(out.parent, f".{out.name}.partial.*")
    temporary = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.partial."))
    with locked(temporary, wait=False):
        try:
            with errors_naming(out):
                yield temporary
            temporary.chmod(0o755)
            with ThreadPoolExecutor() as pool:
                list(pool.map(sync, [temporary, *temporary.rglob("*")]))
            _check_replaceable(out, step)
            _swap(temporary, out)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _check_replaceable(out: Path, step: str) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError("the output must be a folder, not a file", key="--out", value=out)
    if not any(out.iterdir()):
        return
    if writer_of(out) != step:
        raise UsageError(
            f"the output folder holds files that `mbd {step}` did not write",
            key="--out",
            value=out,
            hint="give another folder, or remove this one first",
        )


def writer_of(folder: Path) -> str | None:
    """Return the step that wrote a folder, because only its own output may be replaced; None if none says so."""
    try:
        return str(read_json(folder / STEP_FILE)["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _swap(temporary: Path, out: Path) -> None:
    if out.exists():
        old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.partial."))
        out.rename(old / "old")
        temporary.rename(out)
        shutil.rmtree(old)
    else:
        temporary.rename(out)
    sync(out.parent)


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove what killed processes have left: folders of this name that no process has locked."""
    for folder in parent.glob(pattern):
        if not folder.is_dir():
            continue
        try:
            with locked(folder, wait=False):
                shutil.rmtree(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process uses it, or has just removed it
