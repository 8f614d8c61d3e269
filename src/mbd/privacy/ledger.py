"""The privacy budget of a lineage: what its deletions have cost, and whether another one fits.

A lineage is a trained model and every model that deletions made from it. Every noisy release of the same weights costs
ρ, and costs add up: two deletions from the same model, both published, hide as much as one with less noise. (A deletion
from a model that is noised already gives away no more than that model did; it is added all the same.)

    with open_ledger(folder, lineage) as ledger:           # locked: one deletion of a lineage at a time
        budget = ledger.charge(deletion, rho, …)           # refused if the sum would pass the limit
        …                                                  # delete, and write the model
        ledger.release(deletion, digest_of_the_new_model)  # the charge is settled

Each line of `LINEAGE.jsonl` is an entry with its digest and that of the one before it; the file only grows, and is
replaced whole. A charge without a release (its deletion was killed) is taken up by the next run of the same one: it
counts once. (If the new model is in place already, that run only settles the charge and draws no noise.) A charge with
a release is final: deleting again, with fresh noise, is a second release and costs again.
"""

import math
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mbd.errors import DataError, ExitCode, MbdError
from mbd.files import canonical_digest, locked, write_file
from mbd.formats.guarantee import LedgerEntry, LedgerLine, LineageBudget
from mbd.privacy.gaussian import epsilon_by_gaussian


class BudgetExhaustedError(MbdError):
    """The budget of the lineage does not allow another deletion of this kind."""

    exit_code = ExitCode.REFUSED


def deletion_id(before: str, modalities: tuple[str, ...], params: str) -> str:
    """Return the name of a deletion, the same when it is run again; `before` and `params` are digests."""
    return canonical_digest({"before": before, "modalities": sorted(modalities), "params": params})


@dataclass(frozen=True)
class StatedCharge:
    """A charge as a certificate states it."""

    entry: str
    """digest of the charge in the ledger"""
    modalities: tuple[str, ...]
    rho: float
    rho_before: float
    rho_after: float
    epsilon: float
    delta: float


class Ledger:
    """The ledger of one lineage; made by :func:`open_ledger`."""

    def __init__(self, file: Path, lineage: str) -> None:
        self.file, self.lineage = file, lineage
        self.entries = _read(file, lineage)

    @property
    def rho(self) -> float:
        """What all deletions of the lineage have cost."""
        return _sum(self.entries)

    @property
    def known(self) -> frozenset[str]:
        """Digests of the entries, and of the lost ones that were restored."""
        restored = (entry.deletion for entry in self.entries if entry.event == "restored")
        return frozenset((*(entry.digest for entry in self.entries), *restored))

    @property
    def head(self) -> str:
        """Digest of the last entry, or of the lineage's name if there is none."""
        return self.entries[-1].digest if self.entries else _root(self.lineage)

    def charge(
        self, deletion: str, rho: float, delta: float, limit: float, *, before: str, modalities: tuple[str, ...]
    ) -> LineageBudget:
        """Enter a deletion before its noise is drawn; an open charge of the same deletion is taken up, not repeated.

        Raises:
            BudgetExhaustedError: The lineage would have spent more than `limit`.
        """
        own = self.open_charge(deletion)
        rho_before = _sum(entry for entry in self.entries if entry is not own)
        rho_after = math.fsum((rho_before, rho))
        epsilon_before, epsilon_after = (epsilon_by_gaussian(total, delta) for total in (rho_before, rho_after))
        if epsilon_after > limit:
            raise BudgetExhaustedError(
                f"the privacy budget of the lineage does not allow this deletion: ε = {epsilon_before:.4g} is spent, "
                f"and it would be {epsilon_after:.4g} at δ = {delta:g}; the limit is {limit:g}",
                file=self.file,
                key="deletion.budget_limit",
                value=limit,
                hint="lower deletion.epsilon, raise deletion.budget_limit, or train again without the modality",
            )
        if own is None:
            entered = {"deletion": deletion, "modalities": modalities, "before": before}
            own = self._enter("charge", rho=rho, epsilon=epsilon_after, delta=delta, **entered)
        return LineageBudget(
            rho_before=rho_before,
            rho_after=rho_after,
            epsilon_before=epsilon_before,
            epsilon_after=epsilon_after,
            delta=delta,
            limit=limit,
            entry=own.digest,
        )

    def release(self, deletion: str, after: str) -> str:
        """Settle the open charge of a deletion with the digest of the new weights; return the entry's digest."""
        charge = self.open_charge(deletion)
        if charge is None:
            last = [entry for entry in self.entries if entry.deletion == deletion]
            if last and last[-1].after == after:
                return last[-1].digest
            raise ValueError(f"the deletion {deletion} has no open charge")
        entry = charge.model_copy(update={"previous": self.head, "event": "release", "after": after})
        self._append(entry)
        return entry.digest

    def restore(self, charge: StatedCharge) -> None:
        """Enter a charge that a certificate states, unless it is there; so much is spent at least as it states."""
        if charge.entry in self.known:
            return
        lost = max(0.0, charge.rho_before - self.rho)  # deletions that were charged and have no certificate
        stated = {"deletion": charge.entry, "modalities": charge.modalities, "before": self.lineage}
        rho = math.fsum((lost, charge.rho))
        self._enter("restored", rho=rho, epsilon=charge.epsilon, delta=charge.delta, **stated)

    def open_charge(self, deletion: str) -> LedgerEntry | None:
        """Return the charge of a deletion that has not been settled, if there is one."""
        own = [entry for entry in self.entries if entry.deletion == deletion]
        return own[-1] if own and own[-1].event == "charge" else None

    def _enter(self, event: Literal["charge", "restored"], **fields: Any) -> LedgerEntry:
        entry = LedgerEntry(previous=self.head, salt=secrets.token_hex(32), event=event, **fields)
        self._append(entry)
        return entry

    def _append(self, entry: LedgerEntry) -> None:
        entries = [*self.entries, entry]
        lines = (LedgerLine(entry=entry, sha256=entry.digest) for entry in entries)
        write_file(self.file, "".join(line.model_dump_json() + "\n" for line in lines))
        self.entries = entries


@contextmanager
def open_ledger(folder: Path, lineage: str, *, known: tuple[str, ...] = ()) -> Iterator[Ledger]:
    """Open and lock the ledger of a lineage (the SHA-256 of its first model), or begin one.

    `known` are digests of entries that earlier deletion records list; if one is missing, lines have been lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{lineage}.jsonl"
    lock = folder / f".{lineage}.lock"
    lock.touch()
    with ExitStack() as held:
        try:
            held.enter_context(locked(lock, wait=False))
        except BlockingIOError as error:
            hint = "wait until it has finished, and run this again"
            raise MbdError("another deletion of this lineage is running", file=file, hint=hint) from error
        ledger = Ledger(file, lineage)
        if any(digest not in ledger.known for digest in known):
            raise _damaged(file, "an entry that an earlier deletion record lists is not in it")
        yield ledger


def read_ledger(folder: Path, lineage: str) -> Ledger:
    """Return the ledger of a lineage as it is, to read only."""
    return Ledger(folder / f"{lineage}.jsonl", lineage)


def _sum(entries: Iterable[LedgerEntry]) -> float:
    return math.fsum(entry.rho for entry in entries if entry.event in {"charge", "restored"})


def _root(lineage: str) -> str:
    return canonical_digest({"ledger": "urn:missing-by-design:ledger:v1", "lineage": lineage})


def _read(file: Path, lineage: str) -> list[LedgerEntry]:
    if not file.exists():
        return []
    content = file.read_bytes()
    if not content.endswith(b"\n"):
        raise _damaged(file, "its last line is cut off")
    entries: list[LedgerEntry] = []
    previous = _root(lineage)
    for number, text in enumerate(content.splitlines(), start=1):
        try:
            line = LedgerLine.from_bytes(text, f"entry in line {number}")
        except DataError as error:
            raise _damaged(file, error.problem) from error
        if line.entry.digest != line.sha256:
            raise _damaged(file, f"line {number} has been changed")
        if line.entry.previous != previous:
            raise _damaged(file, f"line {number} does not continue the line before it, or is of another lineage")
        previous = line.sha256
        entries.append(line.entry)
    return entries


def _damaged(file: Path, how: str) -> DataError:
    return DataError(
        f"the budget ledger is damaged: {how}",
        file=file,
        hint="restore the file from a backup; without one, move it away and enter what the store's certificates state: "
        "`mbd certificate restore-ledger --model DIR`",
    )
