"""Feature data between the steps of a pipeline: where they are travels, with a digest, and not the data.

A pipeline's artifact store would keep a copy of every modality of every run, out of reach of a revocation. So the step
`features` hands on only where the FeatureSet comes from (a DVC revision, or the parameters of its source) and its
digest. Each step that needs the data brings it into a folder of its own, compares the digest, and leaves nothing.
Where crypto-shredding is enabled that folder is a private one, encrypted files become plain only there, and what steps
on one machine share is encrypted.
"""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.files import STEP_FILE, canonical_digest, read_json
from mbd.formats.features import FeatureLocation
from mbd.kubeflow.common import work_folder
from mbd.params import Params
from mbd.params.operations import ShreddingSettings
from mbd.shredding.keys import Keyring
from mbd.shredding.vault import encrypt_folder, naming_destroyed_keys, opened
from mbd.steps import features
from mbd.steps.revoked import persons_of

_LOG = logging.getLogger(__name__)
SHARED_FOLDER = "MBD_PIPELINE_FEATURES"
"""environment variable: a folder where the steps of one run on one machine share FeatureSets, by digest"""


def bring_features(
    params: Params, out: Path, rev: str | None = None
) -> tuple[FeatureLocation, features.FeaturesSummary]:
    """Bring the FeatureSet that the parameters name to `out`; return where it is and its summary.

    `rev` is the revision, if it is not `platform.features.rev`.
    """
    summary, revision = features.bring(params, out, rev, _LOG.warning), params.platform.features
    commit = read_json(out / STEP_FILE)["inputs"]["revision"]["commit"] if revision.repository else None
    location = FeatureLocation(
        name=summary.name,
        digest=_digest(out),
        repository=revision.repository,
        commit=commit,
        path=revision.path if commit else None,
        remote=revision.remote,
    )
    return location, summary


@contextmanager
def feature_set(file: Path, params: Params) -> Iterator[Path]:
    """Within: the FeatureSet that the location in `file` names, in a folder of its own, with the right digest.

    Recordings that persons have revoked, as the location says, are not in it.
    """
    location = FeatureLocation.read(file, "location of a FeatureSet", "run the step `features` again")
    with _plain(location, params) as folder:
        if (digest := _digest(folder)) != location.digest:
            raise DataError(
                "the FeatureSet is not the one that this pipeline started with",
                file=file,
                value=f"digest {digest}, the location says {location.digest}",
                hint="name a DVC revision (platform.features), or start the pipeline again",
            )
        with persons_of(params, location.left_out).left_out(folder, location.without) as data:
            yield data


@contextmanager
def _plain(location: FeatureLocation, params: Params) -> Iterator[Path]:
    """Within: the FeatureSet, plain: that which the steps on this machine share, or one that is brought here."""
    settings, shared = params.shredding, _shared(location)
    if shared is not None:
        if not shared.exists():
            with work_folder(settings, "mbd-features-") as work:
                _bring(location, params, work / "features")
                keep_shared(work / "features", location, settings)
        with opened(shared, settings, _LOG.warning) as folder:
            yield folder
        return
    with work_folder(settings, "mbd-features-") as work:
        folder = work / "features"
        _bring(location, params, folder)
        with _naming_keys(location, folder, settings):
            yield folder


def _naming_keys(location: FeatureLocation, folder: Path, settings: ShreddingSettings) -> AbstractContextManager[None]:
    if not settings.enabled:
        return nullcontext()
    return naming_destroyed_keys(folder, Path(location.path or folder), Keyring.of(settings), settings.lineage)


def _bring(location: FeatureLocation, params: Params, folder: Path) -> None:
    named = {"repository": location.repository, "path": location.path or "", "remote": location.remote}
    own = params.having({f"platform.features.{name}": value for name, value in named.items()})
    features.bring(own, folder, location.commit or "HEAD", _LOG.warning)


def keep_shared(folder: Path, location: FeatureLocation, settings: ShreddingSettings) -> None:
    """Let the other steps of a run on this machine have the FeatureSet that was just made."""
    goal = _shared(location)
    if goal is None or goal.exists():
        return
    goal.parent.mkdir(parents=True, exist_ok=True)
    if settings.enabled:
        encrypt_folder(folder, goal, Keyring.of(settings), settings.lineage)
    else:
        shutil.move(folder, goal)


def _shared(location: FeatureLocation) -> Path | None:
    shared = os.environ.get(SHARED_FOLDER)
    return Path(shared) / location.digest if shared else None


def _digest(folder: Path) -> str:
    return canonical_digest(FeatureSet.open(folder).digests())
