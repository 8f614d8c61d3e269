"""Signing a statement with the keys that the parameters name."""

from pathlib import Path

from mbd.certificate.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.certificate.keys import load_signer
from mbd.certificate.trust import Trust, read_trust
from mbd.formats.statement import AnyStatement, to_payload
from mbd.params import CertificateSettings


def sign_statement(statement: AnyStatement, settings: CertificateSettings) -> Envelope:
    """Return the statement signed by every key of `certificate.signers`."""
    trust = own_trust(settings)
    return sign(to_payload(statement), PAYLOAD_TYPE, [load_signer(uri, trust) for uri in settings.signers])


def own_trust(settings: CertificateSettings) -> Trust | None:
    """Return the trust in `certificate.trust`, if there is such a file: keys of a KMS or HSM are looked up in it."""
    file = Path(settings.trust)
    return read_trust(file) if file.exists() else None
