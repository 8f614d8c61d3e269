"""Parameters of crypto-shredding: where keys are, who wraps them, where plaintext may be."""

from typing import Annotated

from pydantic import Field

from mbd.params.base import Settings


class ShreddingSettings(Settings):
    """Encrypted FeatureSets and models, made unreadable everywhere by destroying a key."""

    enabled: bool = False
    """whether steps accept encrypted folders: they are decrypted for the time of the step"""
    keys: str = "build/shredding"
    """folder of the wrapped data keys and of shredding.json; keep it out of backups, or destroyed keys come back"""
    wrapper: Annotated[str, Field(pattern=r"^(file|awskms):.+")] = "file:build/keys/shredding.kek"
    """who wraps the data keys: file:PATH (mode 0600), or awskms:KEY (id, ARN or alias/NAME)"""
    lineage: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """name under which keys are kept; null: the name of the data, for a FeatureSet and all models made from it"""
    temporary: str | None = None
    """where plaintext may be while a step runs; null: /dev/shm if there is one, else the system's temporary folder"""
