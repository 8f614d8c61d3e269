"""What every step has in common: its output appears whole or not at all, with a `step.json` about how it was made.

`step.json` holds the digests of inputs and outputs, the parameters used, versions, and the duration. It is the
one file of a folder that differs between two runs of the same thing, so digests of folders leave it out.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
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
from mbd.files import (
    STEP_FILE,
    canonical_digest,
    file_digests,
    sha256_file,
    to_json,
    whole_folder,
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
