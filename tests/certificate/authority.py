"""A certificate authority for tests: keys, a trust file and a store, on the models of a shared workspace."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.certificate.publish import Publisher
from mbd.certificate.verification import Verdict, from_folder, from_store, verify_bundle
from mbd.params import Params
from mbd.records import now
from mbd.steps import publish
from mbd.storage.store import Store
from mbd.trust.keys import load_signer, make_keys
from tests.certificate.build import ModelWorkspace
from tests.certificate.keyed_store import KeyedStore


def key_settings(folder: Path) -> tuple[str, ...]:
    """Return settings with which keys, trust and everything private are those below `folder`."""
    keys = folder / "keys"
    signers = [f"file:{file}" for file in sorted(keys.glob("*.pem")) if file.stem != "log"]
    return (
        f"certificate.signers={signers}",
        f"certificate.log_signer=file:{keys}/log.pem",
        f"certificate.trust={keys}/trust.json",
        f"certificate.private={folder}/private",
        "certificate.first_time=true",  # what one test has published in a store, another one goes on with
    )


@dataclass(frozen=True)
class CertificateAuthority(KeyedStore):
    """Who certifies, and where it is published."""

    model_workspace: ModelWorkspace

    @classmethod
    def make(cls, model_workspace: ModelWorkspace, folder: Path, *holders: str) -> "CertificateAuthority":
        """Make keys of these holders (by default of one) and of the log."""
        for name in holders or ("signer",):
            make_keys(folder / "keys", name)
        return cls(folder, model_workspace)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings with which everything secret stays in this folder."""
        return (*key_settings(self.folder), f"store.url={self.url}")

    def params(self, *settings: str) -> Params:
        """Return the parameters of this authority."""
        return self.model_workspace.params(*self.settings, *settings)

    def bundle(self, kind: str, name: str | None = None, **options: Any) -> Path:
        """Return a certificate bundle of a deletion, made at first use; `model`: the name to publish it under."""
        out, model = self.folder / (name or f"bundle-{kind}"), options.pop("model", "sentiment")
        if not out.exists():
            settings = (*self.settings, f"certificate.model={model}")
            self.model_workspace.certify(kind, out, *settings, **{"clock": now} | options)
        return out

    def publish(self, kind: str, name: str | None = None, **options: Any) -> Path:
        """Publish a deletion; return the published bundle."""
        out = self.folder / f"published-{name or kind}"
        publish.run(
            self.params(), self.bundle(kind, name, **options), self.model_workspace.deletion(kind), self.url, out
        )
        return out

    def publisher(self, store: Store | None = None) -> Publisher:
        """Return what publishes, into the authority's store or another one."""
        params = self.params()
        signer = load_signer(params.certificate.log_signer)
        return Publisher(store or self.store, params.store, signer, self.trust)

    def verify(self, kind: str, bundle: Path, **options: Any) -> Verdict:
        """Verify a bundle together with the model it is about."""
        trust = options.pop("trust", self.trust)
        return verify_bundle(from_folder(bundle, self.model_workspace.deletion(kind)), trust, **options)

    def verify_in_store(self, digest: str, folder: Path, model: Path | None = None) -> Verdict:
        """Verify what is published, with the files fetched into `folder`."""
        return verify_bundle(from_store(self.store, digest, folder, model), self.trust)
