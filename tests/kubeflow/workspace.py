"""The tasks of the pipeline `delete` one after the other, in one process, with plain objects as artifacts."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mbd.kubeflow import tasks
from mbd.kubeflow.common import write_params, write_resolved
from mbd.params import Params, load_params
from mbd.params.operations import ShreddingSettings
from mbd.shredding.wrapper import FileWrapper
from mbd.trust.keys import make_keys
from tests.pipelines.small import SETTINGS


@dataclass
class PlainArtifact:
    """An artifact as a task sees it."""

    path: str
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.path)


@dataclass(frozen=True)
class ArtifactWorkspace:
    """A folder in which tasks work; its artifacts are known by name."""

    folder: Path
    artifacts: dict[str, PlainArtifact] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    """that go on top of the small ones in everything done here"""

    def artifact(self, name: str) -> PlainArtifact:
        """Return the artifact of this name."""
        return self.artifacts.setdefault(name, PlainArtifact(str(self.folder / name)))

    def params(self, *settings: str) -> PlainArtifact:
        """Return the artifact with :meth:`values`, as the first task of a run writes it."""
        text = self.text(*settings)
        written = PlainArtifact(str(self.folder / "parameters" / hashlib.sha256(text.encode()).hexdigest()))
        write_resolved(written, text)
        return written

    def text(self, *settings: str) -> str:
        """Return :meth:`values` as a pipeline is given them."""
        return write_params(self.values(*settings))

    def values(self, *settings: str) -> Params:
        """Return small parameters with which everything stays in this folder; settings go on top."""
        own = (
            f"certificate.signers=['file:{self.folder}/keys/signer.pem']",
            f"certificate.log_signer=file:{self.folder}/keys/log.pem",
            f"certificate.trust={self.folder}/keys/trust.json",
            f"certificate.private={self.folder}/private",
            f"deletion.ledgers={self.folder}/ledgers",
            f"store.url=file://{self.folder}/store",
            f"purge.tombstones={self.folder}/tombstones",
        )
        return load_params(None, [*SETTINGS, *own, *self.settings, *settings])

    def prepare(self) -> None:
        """Make keys, data, model and reference."""
        make_keys(self.folder / "keys", "signer")
        data, metrics = self.artifact("data"), self.artifact("metrics")
        tasks.features(self.text(), self.artifact("resolved"), data, metrics)
        tasks.train(self.params(), data, self.artifact("model"), metrics)
        tasks.train(self.params(), data, self.artifact("reference"), metrics, without=["audio"])

    def delete(self, name: str = "", *settings: str) -> None:
        """Delete audio, evaluate and attack; the artifacts' names end in `name`."""
        params, data, reference = self.params(*settings), self.artifact("data"), self.artifact("reference")
        deleted, page = self.artifact(f"deleted{name}"), self.artifact(f"page{name}")
        tasks.delete(params, data, self.artifact("model"), reference, ["audio"], [], deleted)
        metrics = self.artifact(f"metrics{name}")
        tasks.evaluate(params, data, deleted, self.artifact(f"evaluation{name}"), metrics, page, reference)
        leakage, before = self.artifact(f"leakage{name}"), self.artifact("model")
        tasks.attack(params, data, ["audio"], leakage, metrics, page, before=before, after=deleted, reference=reference)

    def certify(self, name: str = "", *, request: str = "", run: str = "", leakage: str = "leakage") -> None:
        """Certify the deletion of this name."""
        tasks.certify(
            self.params(),
            self.artifact("data"),
            self.artifact(f"deleted{name}"),
            self.artifact(f"{leakage}{name}"),
            self.artifact(f"evaluation{name}"),
            request,
            run,
            self.artifact(f"certificate{name}"),
        )

    def publish(self) -> None:
        """Publish the certificate."""
        given = self.artifact("certificate"), self.artifact("deleted")
        tasks.publish(self.params(), *given, self.artifact("published"), self.artifact("page"))


def sealing(folder: Path) -> ShreddingSettings:
    """Encryption with everything below one folder, and a key that wraps."""
    FileWrapper(folder / "wrapper").make()
    return ShreddingSettings(
        enabled=True, keys=f"{folder}/data-keys", wrapper=f"file:{folder}/wrapper", temporary=f"{folder}/temporary"
    )


def as_settings(values: ShreddingSettings) -> tuple[str, ...]:
    """Return the parameters as settings of a command line."""
    return tuple(f"shredding.{name}={value}" for name, value in values.model_dump(exclude_none=True).items())
