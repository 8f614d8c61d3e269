"""Parameters of the certificate: who signs, who is trusted, how long it stands."""

from mbd.params.base import Count, Section


class Certificate(Section):
    """A Modality Deletion Certificate."""

    signers: tuple[str, ...] = ("file:build/keys/signer.pem",)
    """URI of every key that signs: file:PATH, or that of a KMS or HSM"""
    log_signer: str = "file:build/keys/log.pem"
    """URI of the key that signs the log's checkpoints"""
    trust: str = "build/keys/trust.json"
    """file of the keys that are trusted, with threshold and validity windows"""
    reaudit_days: Count = 90
    """days after which the deleted model is to be attacked again"""
