"""What a verifier is given: a bundle's folder, or a certificate in a store, and the files that it is about.

    certificate.json       the DSSE envelope around the statement
    model.json             the released model's record          ┐
    indices.safetensors    the edited positions                 │ subjects of the statement; the fifth is the model's
    leakage.json           every attack, as published (*)       │ model.safetensors, which comes with the model
    report.md              all of it in plain words             ┘
    proof.json             inclusion in the transparency log, once it is published

(*) not where subjects were forgotten exactly: nothing is attacked there, the same bits come out of training again.

`step.json`, where there is one, records how the bundle was made; it is not published. What opens the commitments of
a certificate is never in its bundle (`certificate.private`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mbd.errors import DataError, VerificationError
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, PROOF, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.statement import SUBJECTS, AnyStatement, DeletionStatement
from mbd.storage.store import NotThereError, Store
from mbd.trust.envelope import certificate_digest
from mbd.verifier.reader import parse_envelope

_WITH_THE_MODEL = (WEIGHTS, MODEL, INDICES)


@dataclass(frozen=True)
class Bundle:
    """A bundle's folder."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return the place of a file."""
        return self.folder / name

    @property
    def envelope(self) -> bytes:
        """The bytes of the envelope; DataError if there is none."""
        try:
            return self.file(CERTIFICATE).read_bytes()
        except OSError as error:
            raise DataError(
                "there is no certificate in this folder",
                file=self.file(CERTIFICATE),
                hint="give the folder that `mbd certify` or `mbd publish --out` wrote, or the URL of a store",
            ) from error

    @property
    def digest(self) -> str:
        """SHA-256 of the envelope, which is the certificate's name everywhere."""
        return certificate_digest(self.envelope)

    @property
    def statement(self) -> AnyStatement:
        """What the envelope states, well-formed; no signature has been verified."""
        return parse_envelope(self.envelope).require(self.file(CERTIFICATE))


@dataclass(frozen=True)
class VerificationInput:
    """Everything there is to look at."""

    where: str
    """where it came from, without credentials"""
    envelope: bytes
    proof: bytes | None
    files: Mapping[str, tuple[Path, ...]]
    """every copy of each file that the certificate is about"""
    missing: Mapping[str, str] = field(default_factory=dict)
    """files that should be there and are not, with the reason"""
    broken: Mapping[str, str] = field(default_factory=dict)
    """files of which a store has other content, with the reason"""
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
    envelope = Bundle(bundle).envelope
    subjects = [name for name in SUBJECTS if name != WEIGHTS]
    files = {name: [bundle / name] for name in subjects if (bundle / name).is_file()}
    missing = {name: f"{name} is missing from the bundle" for name in subjects if name not in files}
    _add_model(files, missing, model)
    proof = bundle / PROOF
    return VerificationInput(
        where=str(bundle),
        envelope=envelope,
        proof=proof.read_bytes() if proof.is_file() else None,
        files={name: tuple(places) for name, places in files.items()},
        missing=missing,
        store=store,
        model=model,
    )


def from_store(store: Store, digest: str, folder: Path, model: Path | None = None) -> VerificationInput:
    """Fetch a published certificate and the files it is about into `folder`; weights only if no model is given."""
    try:
        envelope = store.read(certificate_name(digest), sha256=digest)
    except NotThereError as error:
        raise DataError(
            "there is no such certificate in this store",
            file=f"{store.url}/{certificate_name(digest)}",
            hint="`mbd certificate list` shows those that there are",
        ) from error
    try:
        proof: bytes | None = store.read(proof_name(digest))
    except NotThereError:
        proof = None
    files: dict[str, list[Path]] = {}
    missing: dict[str, str] = {}
    broken: dict[str, str] = {}
    for name, sha256 in _subjects(envelope).items():
        if name == WEIGHTS and model is not None:
            continue
        try:
            store.fetch(object_name(sha256), folder / name, sha256=sha256)
            files[name] = [folder / name]
        except NotThereError as error:
            if name != WEIGHTS:  # a server need not give them away: then nothing is said about any weights
                missing[name] = error.problem
        except VerificationError as error:
            broken[name] = error.problem
    _add_model(files, missing, model)
    places = {name: tuple(copies) for name, copies in files.items()}
    where = f"{store.url} certificate {digest}"
    return VerificationInput(where, envelope, proof, places, missing, broken, store, model)


def _add_model(files: dict[str, list[Path]], missing: dict[str, str], model: Path | None) -> None:
    """Add what a model folder holds; weights and their record have to be there."""
    if model is None:
        return
    for name in _WITH_THE_MODEL:
        if (model / name).is_file():
            files.setdefault(name, []).append(model / name)
        elif name != INDICES:
            missing[name] = f"{name} is missing from the model folder"


def _subjects(envelope: bytes) -> dict[str, str]:
    """Return which files an envelope is about; nothing if it is not a certificate, which the checks report."""
    try:
        statement = parse_envelope(envelope).require()
    except VerificationError:
        return {}
    digests = statement.digests if isinstance(statement, DeletionStatement) else {}
    return {name: digests[name] for name in SUBJECTS if name in digests}
