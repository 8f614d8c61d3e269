"""A certificate bundle: the folder that a verifier is given and that `mbd verify` reads.

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

from dataclasses import dataclass
from pathlib import Path

from mbd.errors import DataError
from mbd.formats.statement import CERTIFICATE, AnyStatement
from mbd.trust.envelope import certificate_digest
from mbd.verifier.reader import parse_envelope


@dataclass(frozen=True)
class Bundle:
    """A bundle's folder."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return the place of a file."""
        return self.folder / name

    @property
    def envelope(self) -> bytes:
        """The bytes of the envelope."""
        return self._read(CERTIFICATE)

    @property
    def digest(self) -> str:
        """SHA-256 of the envelope, which is the certificate's name everywhere."""
        return certificate_digest(self.envelope)

    @property
    def statement(self) -> AnyStatement:
        """What the envelope states, well-formed; no signature has been verified."""
        return parse_envelope(self.envelope).require(self.file(CERTIFICATE))

    def _read(self, name: str) -> bytes:
        try:
            return self.file(name).read_bytes()
        except OSError as error:
            raise DataError(
                "the bundle lacks a file",
                file=self.file(name),
                hint="`mbd certify` makes a bundle; `mbd publish` adds the proof",
            ) from error
