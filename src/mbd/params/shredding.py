"""Parameters of crypto-shredding: keys, the key that wraps them, and the folder for plaintext."""

from typing import Annotated

from pydantic import Field

from mbd.params.base import Settings


class ShreddingSettings(Settings):
    """Encrypted FeatureSets and models, made unreadable everywhere by destroying a key."""

    enabled: bool = False
    """let steps read encrypted folders, decrypted while the step runs"""
    keys: str = "build/shredding"
    """folder of the wrapped data keys and of shredding.json; keep it out of backups, or destroyed keys come back"""
    wrapper: Annotated[str, Field(pattern=r"^(file|awskms):.+")] = "file:build/keys/shredding.kek"
    """key that wraps the data keys: file:PATH (mode 0600), or awskms:KEY (id, ARN or alias/NAME)"""
    lineage: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """name under which keys are kept; null: the name of the data, for a FeatureSet and all models made from it"""
    temporary: str | None = None
    """folder for plaintext while a step runs; null: /dev/shm if there is one, else the system's temporary folder"""
