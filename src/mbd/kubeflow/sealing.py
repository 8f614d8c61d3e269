"""Artifacts between steps: verified on their way in and out, and encrypted where crypto-shredding is enabled.

With `shredding.enabled` a model never lies in an artifact in plain. A step writes it into a private folder of its own;
from there it goes into the artifact as `NAME.mbdx`, under the keys of its modalities. Whoever reads the artifact gets
its plain form in a private folder, verified against its `step.json`. Private folders (`shredding.temporary`) are gone
when the step has ended, however it ended.
"""

import errno
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mbd.errors import UsageError
from mbd.formats.shredding import KeyName
from mbd.kubeflow.common import Artifact, say, verify
from mbd.params.shredding import ShreddingSettings
from mbd.shredding.keys import Keyring
from mbd.shredding.vault import encrypt_folder, opened
from mbd.shredding.workspace import private_folder


@contextmanager
def readable(settings: ShreddingSettings, *artifacts: Artifact) -> Iterator[list[str]]:
    """Within: the paths of artifacts that are what their steps wrote, plain."""
    with ExitStack() as stack:
        folders = [stack.enter_context(opened(Path(artifact.path), settings, say)) for artifact in artifacts]
        for folder in folders:
            verify(folder)
        yield list(map(str, folders))


@contextmanager
def sealed(settings: ShreddingSettings, artifact: Artifact) -> Iterator[str]:
    """Within: the path for a step to write a model to. What it wrote is verified and becomes the artifact."""
    out = Path(artifact.path)
    if not settings.enabled:
        yield artifact.path
        verify(out)
        return
    with workshop(settings, "mbd-model-") as private:
        yield str(private / out.name)
        verify(private / out.name)
        encrypt_folder(private / out.name, out, Keyring.of(settings), settings.lineage)


@contextmanager
def workshop(settings: ShreddingSettings, prefix: str) -> Iterator[Path]:
    """Within: an empty folder for what must not stay; in memory, and ours alone, where shredding is enabled."""
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
                "there is no room for the plaintext",
                key="shredding.temporary",
                value=private.parent.parent,
                hint="name a folder with more room, or give the pod more memory (platform.memory)",
            ) from error


def have_keys(settings: ShreddingSettings, lineage: str, modalities: Iterable[str]) -> None:
    """See, before the work, that a model of these modalities can be encrypted after it."""
    if not settings.enabled:
        return
    keyring = Keyring.of(settings)
    for modality in modalities:
        keyring.make(KeyName(lineage=settings.lineage or lineage, kind="models", modality=modality))
