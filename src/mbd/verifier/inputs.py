"""What a verifier was given: an envelope, its proof, and the files it is about, in a folder or from a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mbd.errors import DataError, VerificationError
from mbd.formats.deletion import INDICES
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.statement import CERTIFICATE, MODEL, PROOF, SUBJECTS, WEIGHTS, DeletionStatement
from mbd.storage.store import NotThereError, Store
from mbd.trust.envelope import certificate_digest
from mbd.verifier.reader import parse_envelope

_WITH_THE_MODEL = (WEIGHTS, MODEL, INDICES)


@dataclass(frozen=True)
class VerificationInput:
    """Everything there is to look at."""

    where: str
    """where it came from, without credentials"""
    envelope: bytes
    proof: bytes | None
    files: Mapping[str, tuple[Path, ...]]
    """every copy of each file that the certificate is about"""
    broken: Mapping[str, str] = field(default_factory=dict)
    """files that should be there and are not, with the reason"""
    store: Store | None = None
    """the store that it was published in, if that can be asked"""
    model: Path | None = None
    """the model folder that the verifier has; None: no model was given"""

    @property
    def digest(self) -> str:
        """The certificate's name."""
        return certificate_digest(self.envelope)


def from_folder(bundle: Path, model: Path | None = None, store: Store | None = None) -> VerificationInput:
    """Return a bundle's folder, a model folder, and the store to ask whether the certificate is in force."""
    if not (bundle / CERTIFICATE).is_file():
        raise DataError(
            "there is no certificate in this folder",
            file=bundle / CERTIFICATE,
            hint="give the folder that `mbd certify` or `mbd publish --out` wrote, or the URL of a store",
        )
    subjects = [name for name in SUBJECTS if name != WEIGHTS]
    files = {name: [bundle / name] for name in subjects if (bundle / name).is_file()}
    broken = {name: "the bundle lacks it" for name in subjects if name not in files}
    _add_model(files, broken, model)
    proof = bundle / PROOF
    return VerificationInput(
        where=str(bundle),
        envelope=(bundle / CERTIFICATE).read_bytes(),
        proof=proof.read_bytes() if proof.is_file() else None,
        files={name: tuple(places) for name, places in files.items()},
        broken=broken,
        store=store,
        model=model,
    )


def from_store(store: Store, digest: str, folder: Path, model: Path | None = None) -> VerificationInput:
    """Fetch a published certificate and the files it is about into `folder`; weights only if no model is given."""
    envelope = _read(store, certificate_name(digest), digest)
    try:
        proof: bytes | None = store.read(proof_name(digest))
    except NotThereError:
        proof = None
    files: dict[str, list[Path]] = {}
    broken: dict[str, str] = {}
    for name, sha256 in _subjects(envelope).items():
        if name == WEIGHTS and model is not None:
            continue
        try:
            store.fetch(object_name(sha256), folder / name, sha256=sha256)
            files[name] = [folder / name]
        except NotThereError as error:
            if name != WEIGHTS:  # a server need not give them away: then nothing is said about any weights
                broken[name] = error.problem
        except VerificationError as error:
            broken[name] = error.problem
    _add_model(files, broken, model)
    places = {name: tuple(found) for name, found in files.items()}
    return VerificationInput(f"{store.url} certificate {digest}", envelope, proof, places, broken, store, model)


def _add_model(files: dict[str, list[Path]], broken: dict[str, str], model: Path | None) -> None:
    """Add what a model folder holds; weights and their record have to be there."""
    if model is None:
        return
    for name in _WITH_THE_MODEL:
        if (model / name).is_file():
            files.setdefault(name, []).append(model / name)
        elif name != INDICES:
            broken[name] = "the model folder lacks it"


def _read(store: Store, name: str, sha256: str) -> bytes:
    try:
        return store.read(name, sha256=sha256)
    except NotThereError as error:
        raise DataError(
            "there is no such certificate in this store",
            file=f"{store.url}/{name}",
            hint="`mbd certificate list` shows those that there are",
        ) from error


def _subjects(envelope: bytes) -> dict[str, str]:
    """Return which files an envelope is about; nothing if it is not a certificate, which the checks report."""
    try:
        statement = parse_envelope(envelope).require()
    except VerificationError:
        return {}
    digests = statement.digests if isinstance(statement, DeletionStatement) else {}
    return {name: digests[name] for name in SUBJECTS if name in digests}
