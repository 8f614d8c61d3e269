"""Feature data between the steps of a pipeline: a reference with a digest travels, and not the data.

A pipeline's artifact store would keep a copy of every modality of every run, out of reach of a revocation. So the step
`features` hands on only where the FeatureSet comes from (a DVC revision, or the parameters of its source) and its
digest. Each step that needs the data brings it into a folder of its own, compares the digest, and leaves nothing.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.files import STEP_FILE, canonical_digest, read_json
from mbd.params import Params
from mbd.records import Record, read_record
from mbd.steps import features

SHARED_FOLDER = "MBD_PIPELINE_FEATURES"
"""environment variable: a folder where the steps of one run on one machine share FeatureSets, by digest"""


class FeatureReference(Record):
    """Where a FeatureSet comes from, and what it must be."""

    format: Literal["urn:missing-by-design:feature-reference:v1"] = "urn:missing-by-design:feature-reference:v1"
    name: str
    digest: str
    """SHA-256 of the canonical list of its files' digests"""
    repository: str | None
    """DVC repository; null: made anew from features.source of the parameters"""
    commit: str | None
    path: str | None
    remote: str | None


def make_reference(params: Params, out: Path) -> tuple[FeatureReference, dict[str, object]]:
    """Bring the FeatureSet that the parameters name to `out`; return the reference to it and its summary."""
    revision = params.platform.features
    if revision.repository is None:
        summary, commit = features.run(params, out), None
    else:
        summary = features.run_revision(out, revision.repository, revision.rev, revision.path, revision.remote)
        commit = read_json(out / STEP_FILE)["inputs"]["revision"]["commit"]
    reference = FeatureReference(
        name=str(summary["name"]),
        digest=_digest(out),
        repository=revision.repository,
        commit=commit,
        path=revision.path if commit else None,
        remote=revision.remote,
    )
    return reference, summary


def read_reference(file: Path) -> FeatureReference:
    """Return the reference in a file."""
    return read_record(file, FeatureReference, "reference to a FeatureSet", "run the step `features` again")


@contextmanager
def feature_set(file: Path, params: Params) -> Iterator[Path]:
    """Within: the FeatureSet that the reference in `file` names, in a folder of its own, with the right digest."""
    reference = read_reference(file)
    with _folder(reference) as folder:
        if not folder.exists():
            _bring(reference, params, folder)
        if (found := _digest(folder)) != reference.digest:
            raise DataError(
                "the FeatureSet is not the one that this pipeline started with",
                file=file,
                value=f"digest {found}, the reference says {reference.digest}",
                way_out="name a DVC revision (platform.features), or start the pipeline again",
            )
        yield folder


def _bring(reference: FeatureReference, params: Params, folder: Path) -> None:
    if reference.repository is None:
        features.run(params, folder)
    else:
        path, rev = reference.path or "", reference.commit or "HEAD"
        features.run_revision(folder, reference.repository, rev, path, reference.remote)


@contextmanager
def _folder(reference: FeatureReference) -> Iterator[Path]:
    shared = os.environ.get(SHARED_FOLDER)
    if shared:
        yield Path(shared) / reference.digest
        return
    with TemporaryDirectory(prefix="mbd-features-") as folder:
        yield Path(folder) / "features"


def keep_shared(folder: Path, reference: FeatureReference) -> None:
    """Let the other steps of a run on this machine have the FeatureSet that was just made."""
    shared = os.environ.get(SHARED_FOLDER)
    if shared and not (goal := Path(shared) / reference.digest).exists():
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, goal)


def _digest(folder: Path) -> str:
    return canonical_digest(FeatureSet.open(folder).digests())
