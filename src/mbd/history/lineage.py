"""Which certificates belong to one lineage, and whether its privacy budget counts all of them.

The issuer has a lineage key (32 random bytes, `lineage.key` beside the signing key). Under it a certificate commits to

    lineage.id        the first model of the lineage: the same value in all certificates of the lineage
    lineage.record    its deletion.json, so that the issuer can check a copy of it

Others learn from `id` which certificates belong together, and nothing of the weights.

A budget that was charged to an empty ledger states too little. So a certified deletion is compared with the log before
it is signed and published: every charge that a certificate of the lineage states must be in the ledger, and of two
certificates the later one must count what the earlier one has spent.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidTag

from mbd.errors import DataError
from mbd.formats.deletion import DeletionRecord
from mbd.formats.predicate import Predicate
from mbd.formats.statement import DeletionStatement
from mbd.history.history import History
from mbd.privacy.ledger import Ledger, StatedCharge, read_ledger
from mbd.storage.store import NotThereError, Store, update
from mbd.trust.commitments import LineageKey

RECORDS = "deletions/"
SUBJECTS = "subjects/"
_ROUNDING = 1e-9
_RESTORE = "`mbd certificate restore-ledger --model DIR` enters what the store's certificates state; then delete again"


def keep_record(private: Store, certificate: str, deletion: Path, key: LineageKey) -> None:
    """Keep the `deletion.json` of a certificate in the private part of the store, encrypted, for the next deletion.

    It has the digests of old weights, and the ids of subjects if some were deleted.
    """
    content = key.seal(certificate, deletion.read_bytes())
    update(private, RECORDS + certificate, lambda there: None if there == content else content)


def read_record(private: Store, certificate: str, statement: DeletionStatement, key: LineageKey) -> bytes:
    """Return the `deletion.json` that a certificate commits to.

    Raises:
        DataError: There is none, or not the one that was committed to.
    """
    name = RECORDS + certificate
    hint = "publish the certificate again with the folder that `mbd delete` wrote (`mbd publish --model DIR`)"
    try:
        content = key.unseal(certificate, private.read(name))
    except NotThereError as error:
        raise DataError("the deletion record of the certificate is missing", file=name, hint=hint) from error
    except (InvalidTag, ValueError) as error:
        raise DataError("the deletion record of the certificate is damaged", file=name, hint=hint) from error
    refuse_other_record(content, statement, key, name, hint)
    return content


def refuse_other_record(
    content: bytes, statement: DeletionStatement, key: LineageKey, file: Path | str, hint: str | None = None
) -> None:
    """Raise a DataError unless this is the `deletion.json` that a certificate commits to."""
    if key.record(hashlib.sha256(content).hexdigest()) != statement.predicate.lineage.record:
        raise DataError("this is not the deletion record that the certificate commits to", file=file, hint=hint)


def keep_subject(private: Store, value: str, key: LineageKey) -> str:
    """Keep a person's id in the private part of the store, encrypted; return the pseudonym that a request names."""
    pseudonym = key.subject(value)
    content = key.seal(pseudonym, value.encode())
    update(private, SUBJECTS + pseudonym, lambda there: None if there == content else content)
    return pseudonym


def read_subject(private: Store, pseudonym: str, key: LineageKey) -> str:
    """Return the person's id that a pseudonym stands for; DataError if it is missing or not the right one."""
    name, hint = SUBJECTS + pseudonym, "submit the request again"
    try:
        value = key.unseal(pseudonym, private.read(name)).decode()
    except NotThereError as error:
        raise DataError("the person that a request is about is not known", file=name, hint=hint) from error
    except (InvalidTag, ValueError) as error:
        raise DataError("the id behind a pseudonym is damaged", file=name, hint=hint) from error
    if key.subject(value) != pseudonym:
        raise DataError("the id behind a pseudonym is that of another person", file=name, hint=hint)
    return value


def stated_charges(history: History, lineage: str) -> list[StatedCharge]:
    """Return what the certificates of a lineage (by its id) state of its budget, in the log's order."""
    charges = []
    for facts in history.certificates.values():
        if facts.spent is not None:
            predicate = history.certificate(facts.digest).predicate
            if predicate.lineage.id == lineage and (charge := _charge(predicate)):
                charges.append(charge)
    return charges


def refuse_lost_key(history: History, model: str, key: LineageKey) -> None:
    """Refuse another lineage key than that of the last certificate of a model: its budget could not be recognised."""
    if (certificates := history.model(model).certificates) and (
        history.certificate(certificates[-1].digest).predicate.lineage.key != key.id
    ):
        raise DataError(
            "the lineage key is not the one of the last certificate of this model",
            key="certificate.lineage_key",
            value=key.id,
            hint="restore the key from its backup, or publish under another certificate.model",
        )


def refuse_uncounted(predicate: Predicate, stated: Iterable[StatedCharge]) -> None:
    """Refuse a certificate whose budget does not count those that the log has of the same lineage."""
    own = _charge(predicate)
    for other in stated if own else ():
        if own and other.entry != own.entry and not (_counts(own, other) or _counts(other, own)):
            raise DataError(
                "the privacy budget of this certificate does not count an earlier release of the same lineage: it "
                f"states that ρ = {own.rho_before:.4g} was spent before, and the release has cost {other.rho:.4g}",
                key="budget.lineage.rho_before",
                value=own.rho_before,
                hint=f"its ledger was lost or is another one: {_RESTORE}",
            )


def refuse_short_ledger(ledgers: Path, deletion: DeletionRecord, stated: Iterable[StatedCharge]) -> None:
    """Refuse a ledger that lacks the charge of this deletion, or one that a certificate in the log states."""
    ledger = read_ledger(ledgers, deletion.lineage[0])
    own = [deletion.budget.entry] if deletion.budget else []
    missing = [entry for entry in (*own, *(charge.entry for charge in stated)) if entry not in ledger.known]
    if missing:
        raise DataError(
            f"the budget ledger of this lineage lacks {len(missing)} charges that certificates or this deletion state",
            file=ledger.file,
            value=missing[0],
            hint=f"restore the file from a backup; without one, {_RESTORE}",
        )


def restore(ledger: Ledger, stated: Iterable[StatedCharge]) -> int:
    """Enter into a ledger what certificates state and it lacks; return how many entries were added."""
    before = len(ledger.entries)
    for charge in sorted(stated, key=lambda c: c.rho_after):
        ledger.restore(charge)
    return len(ledger.entries) - before


def _charge(predicate: Predicate) -> StatedCharge | None:
    if predicate.budget is None:
        return None
    budget = predicate.budget.lineage
    return StatedCharge(
        entry=budget.entry,
        modalities=predicate.deleted.modalities,
        rho=predicate.budget.rho,
        rho_before=budget.rho_before,
        rho_after=budget.rho_after,
        epsilon=budget.epsilon_after,
        delta=budget.delta,
    )


def _counts(later: StatedCharge, earlier: StatedCharge) -> bool:
    """Whether one charge was made on top of another, or both count each other (the first was taken up again later)."""
    if later.rho_before >= earlier.rho_after * (1 - _ROUNDING):
        return True
    return later.rho_before >= earlier.rho * (1 - _ROUNDING) and earlier.rho_before >= later.rho * (1 - _ROUNDING)
