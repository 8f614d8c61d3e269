"""Artifacts between tasks: verified on their way in and out, and encrypted where crypto-shredding is enabled.

With `shredding.enabled` no artifact holds a model in plain. A task writes the model into a private folder; from there
it goes into the artifact as `NAME.mbdx`, under the keys of its modalities. A task that reads the artifact gets its
plain form in a private folder, verified against its `step.json`. Private folders (`shredding.temporary`) are removed
when the task ends, however it ends.

A deletion record that names persons is encrypted under the lineage key, always: their ids are in no artifact.
"""

import errno
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from cryptography.exceptions import InvalidTag

from mbd.errors import DataError, UsageError
from mbd.files import read_step, write_file
from mbd.formats.deletion import DELETION
from mbd.formats.shredding import KeyName
from mbd.kubeflow.common import Artifact
from mbd.params.certificate import CertificateSettings
from mbd.params.shredding import ShreddingSettings
from mbd.shredding.keys import Keyring
from mbd.shredding.private_folder import private_folder
from mbd.shredding.vault import encrypt_folder
from mbd.steps.context import StepContext
from mbd.trust.lineage_key import read_lineage_key

_SEALED = f"{DELETION}.sealed"


def verify_artifact(context: StepContext, folder: Path) -> Path:
    """Return the folder of an artifact, plain, after checking that its files are what its step wrote."""
    if not folder.is_dir() or not any(folder.iterdir()):
        raise DataError(
            "the artifact has no files",
            file=folder,
            hint="they were removed from the pipeline root, perhaps by a purge, and Kubeflow's cache still names them: "
            "run the pipeline without the cache, or with other arguments",
        )
    plain = context.plain(folder)
    if (plain / _SEALED).is_file():
        plain = context.entered(_with_persons(plain, context.params.certificate))
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


def hide_persons(settings: CertificateSettings, artifact: Artifact) -> None:
    """Encrypt the deletion record of an artifact, which names persons, under the lineage key."""
    file = Path(artifact.path) / DELETION
    write_file(file.with_name(_SEALED), read_lineage_key(settings).seal(DELETION, file.read_bytes()))
    file.unlink()


@contextmanager
def _with_persons(folder: Path, settings: CertificateSettings) -> Iterator[Path]:
    """Within: a private copy of a folder with its deletion record decrypted."""
    sealed_record = (folder / _SEALED).read_bytes()
    try:
        content = read_lineage_key(settings).unseal(DELETION, sealed_record)
    except (InvalidTag, ValueError) as error:
        raise DataError("the deletion record of the artifact is damaged", file=folder / _SEALED) from error
    with private_folder(gettempdir()) as private:
        shutil.copytree(folder, private / folder.name, ignore=shutil.ignore_patterns(_SEALED))
        write_file(private / folder.name / DELETION, content)
        yield private / folder.name


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
