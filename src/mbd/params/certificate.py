"""Parameters of the certificate: who signs, who is trusted, when it is audited again."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from mbd.formats.limits import CHECKPOINT_AGE, LONGEST_INTERVAL
from mbd.names import Line, Name
from mbd.params.base import Settings


class IssuerSettings(Settings):
    """Who answers for a certificate."""

    name: Line | None = None
    """person or organisation that issues certificates; it is published"""
    contact: Line | None = None
    """where to ask about a certificate: an e-mail address or a URL; it is published"""


class CertificateSettings(Settings):
    """A Modality Deletion Certificate."""

    signers: tuple[str, ...] = ("file:build/keys/signer.pem",)
    """URI of every key that signs: file:PATH, or URI#NAME for a KMS or HSM whose key the trust file has as NAME"""
    log_signer: str = "file:build/keys/log.pem"
    """URI of the key that signs the log's checkpoints"""
    trust: str = "build/keys/trust.json"
    """trust file: the trusted keys, with threshold and validity windows"""
    model: Name = "sentiment"
    """name under which the model is published"""
    lineage_key: str | None = None
    """file with the secret by which certificates name their lineage; null: lineage.key beside the first signing key"""
    issuer: IssuerSettings = IssuerSettings()
    private: str = "build/private"
    """folder (mode 0700) for the openings of commitments; never published, never part of a bundle"""
    reaudit_days: Annotated[int, Field(ge=1, le=LONGEST_INTERVAL.days)] = 90
    """days until the deleted model has to be audited again"""
    checkpoint_days: Annotated[int, Field(ge=1, le=366)] = CHECKPOINT_AGE.days
    """days after which a checkpoint of the log is too old to show that nothing was revoked (`mbd log renew`)"""

    @property
    def checkpoint_age(self) -> timedelta:
        """How old a checkpoint of the log may be."""
        return timedelta(days=self.checkpoint_days)
