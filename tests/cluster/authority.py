"""The certificates of the cluster: an authority of its own, and what it signs."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Writes NAME.crt and NAME.key into a folder; its own are `authority.crt` and `authority.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority")
        self._write("authority", self._certificate(self._name, self._key, x509.BasicConstraints(True, None)), self._key)

    def issue(self, name: str, *addresses: str, names: tuple[str, ...] = ()) -> None:
        """Sign a certificate for servers and clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        spoken = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        alternative = x509.SubjectAlternativeName(spoken or [x509.DNSName(name)])
        self._write(name, self._certificate(_named(name), key, alternative), key)

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=7))
        critical = isinstance(extension, x509.BasicConstraints)
        return builder.add_extension(extension, critical=critical).sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / f"{name}.key").write_bytes(private)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
