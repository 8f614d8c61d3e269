"""Parameters of the certificate: who signs, who is trusted, when it is audited again."""

from typing import Annotated

from pydantic import Field

from mbd.params.base import Count, Settings


class CertificateSettings(Settings):
    """A Modality Deletion Certificate."""

    signers: tuple[str, ...] = ("file:build/keys/signer.pem",)
    """URI of every key that signs: file:PATH, or URI#NAME for a KMS or HSM whose key the trust file has as NAME"""
    log_signer: str = "file:build/keys/log.pem"
    """URI of the key that signs the log's checkpoints"""
    trust: str = "build/keys/trust.json"
    """trust file: the trusted keys, with threshold and validity windows"""
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "sentiment"
    """name under which the model is published"""
    private: str = "build/private"
    """folder (mode 0700) for the openings of commitments; never published, never part of a bundle"""
    reaudit_days: Count = 90
    """days until the deleted model has to be audited again"""
