"""Artifacts between tasks: verified on their way in and out, and encrypted where crypto-shredding is enabled.

With `shredding.enabled` no artifact holds a model in plain. A task writes the model into a private folder; from there
it goes into the artifact as `NAME.mbdx`, under the keys of its modalities. A task that reads the artifact gets its
plain form in a private folder, verified against its `step.json`. Private folders (`shredding.temporary`) are removed
when the task ends, however it ends.
"""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mbd.errors import DataError, UsageError
from mbd.files import read_step
from mbd.formats.shredding import KeyName
from mbd.kubeflow.common import Artifact
from mbd.params.shredding import ShreddingSettings
from mbd.shredding.keys import Keyring
from mbd.shredding.private_folder import private_folder
from mbd.shredding.vault import encrypt_folder
from mbd.steps.context import StepContext


def verified(context: StepContext, artifact: Artifact) -> Path:
    """Return the folder of an artifact, plain, whose files are what its step wrote."""
    folder = Path(artifact.path)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise DataError(
            "the artifact has no files",
            file=folder,
            hint="they were removed from the pipeline root, perhaps by a purge, and Kubeflow's cache still names them: "
            "run the pipeline without the cache, or with other arguments",
        )
    plain = context.plain(folder)
    read_step(plain)
    return plain


@contextmanager
def sealed(settings: ShreddingSettings, artifact: Artifact) -> Iterator[Path]:
    """Within: the folder for a step to write a model to. What it wrote is verified and becomes the artifact."""
    out = Path(artifact.path)
    if not settings.enabled:
        yield out
        read_step(out)
        return
    with work_folder(settings, "mbd-model-") as private:
        yield private / out.name
        read_step(private / out.name)
        encrypt_folder(private / out.name, out, Keyring.of(settings), settings.lineage)


@contextmanager
def work_folder(settings: ShreddingSettings, prefix: str) -> Iterator[Path]:
    """Within: an empty folder for what must not stay; in memory and private where shredding is enabled."""
    if not settings.enabled:
        with TemporaryDirectory(prefix=prefix) as folder:
            yield Path(folder)
        return
    with private_folder(settings.temporary) as private:
        try:
            yield private
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise UsageError(
                "not enough space for the plaintext",
                key="shredding.temporary",
                value=private.parent.parent,
                hint="name a folder with more space, or give the pod more memory (platform.memory)",
            ) from error


def have_keys(settings: ShreddingSettings, lineage: str, modalities: Iterable[str]) -> None:
    """Check, before the work, that a model of these modalities can be encrypted after it."""
    if not settings.enabled:
        return
    keyring = Keyring.of(settings)
    for modality in modalities:
        keyring.make(KeyName(lineage=settings.lineage or lineage, kind="models", modality=modality))
