"""in-toto statements (https://in-toto.io/Statement/v1): which files they are about, and what they say of them.

Eight kinds, distinguished by `predicateType`:

    urn:missing-by-design:modality-deletion:v1     the certificate; subjects are the files of the release
    urn:missing-by-design:registration:v1          a model goes into production; subjects are its two files
    urn:missing-by-design:supersession:v1          a certificate is replaced by another one
    urn:missing-by-design:revocation:v1            a certificate is withdrawn
    urn:missing-by-design:reaudit:v1               the attacks were run again on the released model
    urn:missing-by-design:purge:v1                 copies of the old weights were searched for and removed
    urn:missing-by-design:reinstatement:v1         modalities that certificates have revoked may be taken again
    urn:missing-by-design:nothing-held:v1          of a person, nothing was in the data of a release

The last six are about certificates: their subjects are SHA-256 of envelopes. What is signed is the canonical
JSON (RFC 8785) of a statement.
"""

import json
from typing import Annotated, Any, Final, Literal, get_args

import rfc8785
from pydantic import AwareDatetime, ConfigDict, Field, ValidationError, model_validator

from mbd.errors import VerificationError
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, REPORT, WEIGHTS
from mbd.formats.leakage import LEAKAGE, AuditSummary
from mbd.formats.predicate import Count, Erasure, Predicate, RequestReference
from mbd.formats.registration import Registration, Reinstatement
from mbd.records import Digest, Line, Name, Record, Time, invalid

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
DELETION_TYPE: Final = "urn:missing-by-design:modality-deletion:v1"
SUPERSESSION_TYPE: Final = "urn:missing-by-design:supersession:v1"
REVOCATION_TYPE: Final = "urn:missing-by-design:revocation:v1"
REAUDIT_TYPE: Final = "urn:missing-by-design:reaudit:v1"
PURGE_TYPE: Final = "urn:missing-by-design:purge:v1"
REGISTRATION_TYPE: Final = "urn:missing-by-design:registration:v1"
REINSTATEMENT_TYPE: Final = "urn:missing-by-design:reinstatement:v1"
NOTHING_HELD_TYPE: Final = "urn:missing-by-design:nothing-held:v1"

SUBJECTS = (WEIGHTS, MODEL, INDICES, LEAKAGE, REPORT)
"""the files that a certificate is about; `leakage.json` only where there are attacks"""

KeyKind = Literal["features", "models"]
"""what a data key is for: feature files, or what models have of a modality"""
_EXACT_INTEGERS = 2**53


class DigestSet(Record):
    """Digests of a subject."""

    sha256: Digest


class Subject(Record):
    """A file that a statement is about."""

    name: str
    digest: DigestSet


class Statement(Record):
    """What all statements have in common."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True, validate_by_alias=True)

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT_TYPE
    subject: Annotated[tuple[Subject, ...], Field(min_length=1)]

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every subject, by name."""
        return {subject.name: subject.digest.sha256 for subject in self.subject}

    @model_validator(mode="after")
    def _every_name_once(self) -> "Statement":
        if len(self.digests) != len(self.subject):
            raise ValueError("two subjects have the same name")
        return self


class DeletionStatement(Statement):
    """A Modality Deletion Certificate."""

    predicateType: Literal["urn:missing-by-design:modality-deletion:v1"] = DELETION_TYPE  # noqa: N815 -- in-toto's name
    predicate: Predicate

    @model_validator(mode="after")
    def _all_files(self) -> "DeletionStatement":
        files = {name for name in SUBJECTS if name != LEAKAGE or self.predicate.evidence.audit is not None}
        if set(self.digests) != files:
            raise ValueError(f"the subjects of this certificate are {', '.join(sorted(files))}")
        return self


class RegistrationStatement(Statement):
    """A model goes into production."""

    predicateType: Literal["urn:missing-by-design:registration:v1"] = REGISTRATION_TYPE  # noqa: N815
    predicate: Registration

    @model_validator(mode="after")
    def _both_files(self) -> "RegistrationStatement":
        if set(self.digests) != {WEIGHTS, MODEL}:
            raise ValueError(f"the subjects of a registration are {MODEL} and {WEIGHTS}")
        return self


class _AboutCertificate(Statement):
    @model_validator(mode="after")
    def _one_certificate(self) -> "_AboutCertificate":
        if set(self.digests) != {CERTIFICATE}:
            raise ValueError(f"the one subject of this statement is {CERTIFICATE}")
        return self

    @property
    def certificate(self) -> str:
        """SHA-256 of the envelope of the certificate that this is about."""
        return self.digests[CERTIFICATE]


class Supersession(Record):
    """The subject is replaced."""

    by: Digest
    """SHA-256 of the envelope of the new certificate"""
    reason: Line
    issued: Time


class Revocation(Record):
    """The subject is withdrawn: what it states should no longer be relied on."""

    reason: Line
    issued: Time


class Reaudit(Record):
    """The attacks were run again on the released model."""

    audit: AuditSummary
    leakage: Digest
    """SHA-256 of its `leakage.json`, which is an object of the store"""
    issued: Time
    reaudit_by: Time
    """by when to run them again; what counts if the gate let the model pass"""
    run_id: str | None = None
    """the pipeline run that made the audit; null: none did"""

    @property
    def passed(self) -> bool:
        """Whether the gate still opens."""
        return self.audit.decision == "passed"


class DestroyedKey(Record):
    """A key that is gone."""

    id: Digest
    kind: KeyKind
    modality: str
    at: AwareDatetime


class ShreddingFacts(Record):
    """What can be stated of the keys of revoked modalities: for `purge.json` and for certificates."""

    destroyed: tuple[DestroyedKey, ...]
    whole: bool
    """whether none of the keys asked for is left"""
    record: Digest
    """SHA-256 of shredding.json"""


class PlaceReport(Record):
    """A place that was searched."""

    kind: str
    """workspace, DVC cache, DVC remote, …"""
    found: Count
    """copies and versions found there"""
    removed: Count
    left: Count
    """copies that are still there, by a fresh listing"""
    gone: bool
    """whether a fresh listing of the whole place has shown that nothing is left"""
    reasons: tuple[str, ...]
    """why something is left or unknown, in words that name nothing"""


class PurgeReport(Record):
    """Copies of the old weights, and of what else was to go, were searched for and removed."""

    erasure: Erasure
    targets: dict[str, Count]
    """how many files were searched for, by what they are: weights, snapshot, features, export"""
    modalities: tuple[str, ...]
    """modalities whose feature files were searched for as well"""
    excepted: Count
    """files that were to go and stay, because other models need them"""
    places: tuple[PlaceReport, ...]
    shredding: ShreddingFacts | None = None
    """data keys that were destroyed, so that encrypted copies anywhere can no longer be read; null: there were none"""
    proof: Digest
    """SHA-256 of purge.json"""
    tombstones: Digest
    """SHA-256 of the list of these files, which stays private; they must not reappear"""
    issued: Time


class SupersessionStatement(_AboutCertificate):
    """A certificate is replaced by another one."""

    predicateType: Literal["urn:missing-by-design:supersession:v1"] = SUPERSESSION_TYPE  # noqa: N815
    predicate: Supersession


class RevocationStatement(_AboutCertificate):
    """A certificate is withdrawn."""

    predicateType: Literal["urn:missing-by-design:revocation:v1"] = REVOCATION_TYPE  # noqa: N815
    predicate: Revocation


class ReauditStatement(_AboutCertificate):
    """New evidence for, or against, a certificate."""

    predicateType: Literal["urn:missing-by-design:reaudit:v1"] = REAUDIT_TYPE  # noqa: N815
    predicate: Reaudit


class PurgeStatement(_AboutCertificate):
    """What is left of the weights that a certificate's model was deleted from."""

    predicateType: Literal["urn:missing-by-design:purge:v1"] = PURGE_TYPE  # noqa: N815
    predicate: PurgeReport


class NothingHeld(Record):
    """Persons asked for the deletion of recordings, and the data of the release, all splits of it, has none."""

    model: Name
    modalities: Annotated[tuple[Name, ...], Field(min_length=1)]
    subjects: Annotated[tuple[Digest, ...], Field(min_length=1)]
    """commitments to the ids of the persons"""
    data: Digest
    """commitment to the digest of the data that was searched"""
    rows: Count
    """how many rows were searched"""
    request: RequestReference
    issued: Time


class NothingHeldStatement(_AboutCertificate):
    """Nothing of some persons was in the data of a release, which is the subject: its certificate or registration."""

    predicateType: Literal["urn:missing-by-design:nothing-held:v1"] = NOTHING_HELD_TYPE  # noqa: N815
    predicate: NothingHeld


class ReinstatementStatement(Statement):
    """Modalities that certificates have revoked for a model's name may be taken again."""

    predicateType: Literal["urn:missing-by-design:reinstatement:v1"] = REINSTATEMENT_TYPE  # noqa: N815
    predicate: Reinstatement

    @model_validator(mode="after")
    def _named_by_digest(self) -> "ReinstatementStatement":
        if any(name != digest for name, digest in self.digests.items()):
            raise ValueError("the subjects of a reinstatement are certificates, each named by its SHA-256")
        return self

    @property
    def certificates(self) -> tuple[str, ...]:
        """SHA-256 of the envelopes of the certificates that it overrules."""
        return tuple(self.digests)


AnyStatement = (
    DeletionStatement
    | RegistrationStatement
    | SupersessionStatement
    | RevocationStatement
    | ReauditStatement
    | PurgeStatement
    | ReinstatementStatement
    | NothingHeldStatement
)
AboutCertificate = (
    SupersessionStatement | RevocationStatement | ReauditStatement | PurgeStatement | NothingHeldStatement
)
_STATEMENTS: dict[str, type[AnyStatement]] = {
    kind.model_fields["predicateType"].default: kind for kind in get_args(AnyStatement)
}


def subject_certificates(statement: AnyStatement) -> tuple[str, ...]:
    """Return the certificates that a statement is about: for a certificate, the one that it replaces."""
    match statement:
        case DeletionStatement():
            return (statement.predicate.supersedes,) if statement.predicate.supersedes else ()
        case RegistrationStatement():
            return ()
        case ReinstatementStatement():
            return statement.certificates
    return (statement.certificate,)


class UnknownTypeError(VerificationError):
    """The signed content is no statement of a type that this version knows: of a later format, or of something else."""


def subjects_of(digests: dict[str, str]) -> tuple[Subject, ...]:
    """Return subjects in the order of their names."""
    return tuple(Subject(name=name, digest=DigestSet(sha256=digests[name])) for name in sorted(digests))


def to_payload(statement: AnyStatement) -> bytes:
    """Return the bytes that are signed: canonical JSON, with integers beyond 2⁵³ as strings."""
    return rfc8785.dumps(exact_integers(statement.to_plain()))


def parse_payload(payload: bytes) -> AnyStatement:
    """Return the statement in signed bytes; VerificationError if there is none."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise VerificationError("the signed content is not JSON") from error
    predicate_type = content.get("predicateType") if isinstance(content, dict) else None
    if not isinstance(predicate_type, str) or predicate_type not in _STATEMENTS:
        raise UnknownTypeError(
            "this version of mbd knows no statement of this type, a later one may",
            key="predicateType",
            value=predicate_type,
        )
    try:
        return _STATEMENTS[predicate_type].model_validate_json(payload, strict=True)
    except ValidationError as error:
        raise invalid(error, "statement", kind=VerificationError) from error


def is_canonical(payload: bytes) -> bool:
    """Whether bytes are the canonical form (RFC 8785) of the JSON that they hold."""
    try:
        return rfc8785.dumps(json.loads(payload.decode("utf-8"), parse_int=_number)) == payload
    except (ValueError, RecursionError):
        return False


def _number(digits: str) -> int | float:
    """Read an integer as every reader of JSON does: beyond 2⁵³ it is a floating-point number."""
    return int(digits) if abs(int(digits)) < _EXACT_INTEGERS else float(digits)


def exact_integers(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Return JSON whose integers every reader reads alike: those beyond 2⁵³ as strings."""
    if isinstance(value, dict):
        return {key: exact_integers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [exact_integers(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT_INTEGERS:
        return str(value)
    return value
