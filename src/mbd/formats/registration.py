"""What is stated of a model that goes into production, and of consent that was given again.

A registration names the model by the digests of its files, the data by a commitment, and for each set of modalities
that may be revoked the reference: the model that never saw them. It is `promoted` if it becomes the current release of
its name; a challenger that lost is registered and not promoted. A reinstatement lists the certificates that it
overrules: no other one loses its effect by it.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mbd.formats.model import ComponentName
from mbd.formats.predicate import Count, DigestOrCommitment, Issuer
from mbd.records import Digest, Line, Name, Record, Time

Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class RegisteredData(Record):
    """The data that a model was trained on."""

    name: str
    content: DigestOrCommitment
    """digest of the digests of the files that training has read, or a commitment to it"""
    dvc_revision: str | None
    """revision of the DVC repository that the data came from; null: it came from none"""


class RegisteredReference(Record):
    """A model that was trained like the registered one, but never saw some of its modalities."""

    without: Names
    """modalities that the registered model takes, and this one has never seen"""
    weights: Digest
    record: Digest
    """SHA-256 of its `model.json`"""


class RegisteredEvaluation(Record):
    """What a model was worth on the valid split when it was registered."""

    split: Literal["valid"] = "valid"
    modalities: tuple[Name, ...]
    """what it was given"""
    rows: Count
    metrics: dict[str, float]


class Registration(Record):
    """A model is registered under a name."""

    model: Name
    """name under which it is served"""
    issuer: Issuer
    backbone: ComponentName
    inputs: dict[Name, Count]
    """modalities that the model takes, with their dimensions"""
    sees: tuple[Name, ...]
    """modalities that its training has seen: those it takes, and by the provenance of its tensors any other"""
    data: RegisteredData
    left_out: tuple[Digest, ...]
    """SHA-256 of the certificates of persons' deletions whose recordings training has left out, in ascending order"""
    references: tuple[RegisteredReference, ...]
    evaluation: RegisteredEvaluation | None
    promoted: bool
    """whether it becomes the current release of the name"""
    reason: str
    """why it was promoted, or not"""
    previous: Digest | None
    """SHA-256 of the envelope of the last release of the name that the log had before; null: it had none"""
    git_commit: str | None
    image_digest: str | None
    run_id: str | None
    issued: Time

    @model_validator(mode="after")
    def _whole(self) -> "Registration":
        if not set(self.inputs) <= set(self.sees):
            raise ValueError("a model has seen the modalities that it takes")
        left_out = [frozenset(reference.without) for reference in self.references]
        if len(set(left_out)) < len(left_out) or not all(gone < set(self.inputs) for gone in left_out):
            raise ValueError("each reference leaves out other modalities of the model, and not all of them")
        return self


class Reinstatement(Record):
    """Consent was given again: releases of a name may take modalities that were revoked for it."""

    model: Name
    modalities: Names
    reason: Annotated[Line, Field(min_length=1)]
    issued: Time
