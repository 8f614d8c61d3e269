"""Every object of a store, one at a time: removed, replaced by an older version, by another object or by a link.

A store has certificates that are valid and certificates that are not: revoked, superseded, refuted, overdue, or of a
model that takes a modality which was revoked for its name. Each has a model name of its own, which says what is true of
it. After each change, verify, guard, list and exporter are asked, as readers that see the store for the first time and
as a machine that remembers it, under each spelling of its URL in turn. They may be unable to tell; they must never call
valid what is not, and what was changed must not be remembered once it is put back.

    python -m tests.certificate.campaign [CERTIFICATES]
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle
from pathlib import Path

import pytest

from mbd.certificate.guard import admit
from mbd.certificate.verification import from_store, verify_bundle
from mbd.errors import MbdError
from mbd.formats.layout import LatestPointer, proof_name
from mbd.history import history as history_module
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.history.state import check_status, states_in, status_in
from mbd.log.checkpoint import Inclusion
from mbd.log.tiles import CHECKPOINT, OLD_CHECKPOINTS
from mbd.monitoring import metrics
from mbd.records import now
from mbd.storage import folder_of
from mbd.storage.store import NotThereError, StoredObject
from mbd.verifier import bundle, reader
from mbd.verifier.reader import parse_envelope
from tests.monitoring.golden_store import GOLDEN, GoldenStore, days_from_now
from tests.monitoring.page import ExporterPage

VALID = "valid"
KINDS = (VALID, "revoked", "superseded", "refuted", "overdue", "returned")


def fill(golden_store: GoldenStore, count: int) -> dict[str, str]:
    """Publish `count` certificates with statements about them; return what is true of each, by digest."""
    golden_store.files("surgery", "exact", "subjects")
    truth = {}
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        truth[_publish(golden_store, kind, f"{kind}-{number}")] = kind
    return truth


def _publish(golden_store: GoldenStore, kind: str, model: str) -> str:
    if kind == VALID:
        digest = golden_store.certificate("exact", model=model)
        golden_store.audit(digest, kind="exact")
    elif kind == "overdue":
        late = {"issued": days_from_now(-40), "reaudit_by": days_from_now(-1)}
        digest = golden_store.certificate("surgery", model=model, **late)  # type: ignore[arg-type]
        golden_store.audit(digest, models={"after": "0" * 64})  # of other weights: it moves no date
    elif kind == "returned":
        digest = golden_store.certificate("subjects", model=model)
        golden_store.certificate("exact", model=model)
    else:
        digest = golden_store.certificate("surgery", model=model)
        if kind == "revoked":
            golden_store.revoke(digest)
        elif kind == "refuted":
            golden_store.audit(digest, decision="refused", reasons=("it leaks",))
        else:
            golden_store.certificate("exact", model=model, supersedes=digest)
    pointer = LatestPointer(certificate=digest, index=0)
    golden_store.store.create(f"latest/{model}/audio", pointer.to_bytes())
    return digest


@dataclass(frozen=True)
class Respelled(GoldenStore):
    """The same keys and store under another URL."""

    spelling: str

    @property
    def url(self) -> str:
        return self.spelling


def spellings(golden_store: GoldenStore) -> tuple[GoldenStore, ...]:
    """Return a store in a folder under several URLs; one goes through a link."""
    folder = golden_store.folder
    (folder / "link").symlink_to("store")
    others = (f"{folder}/link", f"{folder}/store/../link/", f"{folder}//%73tore")
    return (golden_store, *(Respelled(folder, f"file://{other}") for other in others))


@dataclass
class Campaign:
    """A store under its URLs, what is true of its certificates, and what readers have said."""

    places: tuple[GoldenStore, ...]
    truth: dict[str, str]
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def golden_store(self) -> GoldenStore:
        """The store under the first of its URLs."""
        return self.places[0]

    def run(self, work: Path) -> None:
        """Make every change, ask all readers, and put the object back."""
        for place in self.places:
            self.ask(place, "nothing", work)
        assert self.counts["valid"], "readers that call nothing valid are none"
        before = self.remembered()
        for (name, what, content), place in zip(list(self.changes()), cycle(self.places), strict=False):
            original = self.golden_store.store.read(name)
            self._write(name, content)
            try:
                self.ask(place, f"{name} {what}, as {place.url}", work)
            finally:
                self._write(name, original)
            self.counts[what] += 1
        assert self.remembered() == before, "what was changed for a while is remembered"

    def changes(self) -> Iterator[tuple[str, str, bytes | Path | None]]:
        """Yield the name of an object, what happens to it, and its content then: none, bytes, or a link to a file."""
        store = self.golden_store.store
        names = [stored.name for stored in store.list()]
        for name, neighbour in zip(names, [*names[1:], names[0]], strict=True):
            yield name, "removed", None
            if (content := store.read(neighbour)) != store.read(name):
                yield name, "replaced by another", content
                if self._file(neighbour):
                    yield name, "replaced by a link", self._file(neighbour)
        for stored in store.list(OLD_CHECKPOINTS):
            yield CHECKPOINT, "replaced by an older one", store.read(stored.name)
            if file := self._file(stored.name):
                yield CHECKPOINT, "replaced by a link to an older one", file

    def remembered(self) -> list[dict[str, tuple[str, str]]]:
        """Return the states that this machine answers under each URL."""
        histories = (read_history(place.store, place.trust) for place in self.places)
        return [dict(states_in(history, now(), None)) for history in histories]

    def ask(self, place: GoldenStore, change: str, work: Path) -> None:
        """Ask all readers under one URL."""
        for cached in (True, False):
            try:
                history = read_history(place.store, place.trust, cached=cached)
            except MbdError:
                self.counts["log refused, as remembered" if cached else "log refused"] += 1
                continue
            self._ask_list(change, history)
            self._ask_guard(change, history)
            if not cached:
                self.counts["log blocked"] += bool(history.blocking)
                self._ask_verify(change, history, work)
        self._ask_exporter(place, change)

    def _ask_list(self, change: str, history: History) -> None:
        for digest, certificate in history.certificates.items():
            state = status_in(history, certificate, now()).state
            assert state != VALID or self.truth.get(digest, VALID) == VALID, f"list, {change}"

    def _ask_verify(self, change: str, history: History, work: Path) -> None:
        for digest, kind in self.truth.items():
            if not self._may_be_verified(digest, history):
                continue
            try:
                given = from_store(history.store, digest, work)
            except MbdError:
                continue
            verdict = verify_bundle(given, self.golden_store.trust, history=history)
            assert not verdict.verified or kind == VALID, f"verify, {change}: {kind}"
            self.counts["valid"] += verdict.verified

    def _may_be_verified(self, digest: str, history: History) -> bool:
        """Ask for the checks that need the log; the others cannot make up for one that was not passed."""
        store, trust = history.store, self.golden_store.trust
        try:
            inclusion = Inclusion.from_bytes(store.read(proof_name(digest)), "proof of inclusion")
        except MbdError:
            return False
        checks = check_status(digest, inclusion, store, trust, now(), history=history).checks
        return all(check.outcome == "passed" for check in checks)

    def _ask_guard(self, change: str, history: History) -> None:
        for kind, admissible in (("surgery", False), ("exact", True), ("subjects", False)):
            try:
                admission = admit(
                    GOLDEN / kind / "model", history.store, self.golden_store.trust, history=history, name=f"{VALID}-0"
                )
            except MbdError:
                continue
            assert admissible, f"guard, {change}: {kind}"
            assert self.truth.get(admission.release.digest, VALID) == VALID, f"guard, {change}"
            self.counts["admitted"] += 1

    def _ask_exporter(self, place: GoldenStore, change: str) -> None:
        monitor = place.monitor()
        monitor.scan()
        page = ExporterPage(monitor.text())
        for (model, _, state, _), count in page[metrics.CERTIFICATES].items():
            if state == VALID and count:
                others = {"superseded": 1, "returned": 1}.get(model.partition("-")[0], 0)  # the certificate after it
                assert count <= int(model.startswith(VALID)) + others, f"exporter, {change}: {model}"

    def _file(self, name: str) -> Path | None:
        """Return the file of an object; None: the store is no folder."""
        url = self.golden_store.url
        return folder_of(url) / name if url.startswith("file://") else None

    def _write(self, name: str, content: bytes | Path | None) -> None:
        store, file = self.golden_store.store, self._file(name)
        if file and (file.is_symlink() or isinstance(content, Path)):
            file.unlink()
        if file and isinstance(content, Path):
            file.symlink_to(content)
            return
        assert not isinstance(content, Path)
        try:
            _, tag = store.read_tagged(name)
        except NotThereError:
            tag = None
        if content is not None:
            store.replace(name, content, expected=tag)
        elif tag is not None:
            store.delete([StoredObject(name, 0, tag)])


def remember_parsed_envelopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the same bytes once: this is what takes most of the time, and it depends on nothing else."""
    remembered = lru_cache(maxsize=None)(parse_envelope)
    for module in (reader, history_module, bundle):
        monkeypatch.setattr(module, "parse_envelope", remembered)


def main(count: int = 50) -> None:
    """Run the whole campaign on a folder, and print what was found."""
    remember_parsed_envelopes(pytest.MonkeyPatch())
    with tempfile.TemporaryDirectory() as temporary:
        golden_store, start = GoldenStore.open(Path(temporary)), time.perf_counter()
        truth = fill(golden_store, count)
        campaign = Campaign(spellings(golden_store), truth)
        objects = sum(1 for _ in golden_store.store.list())
        size = read_history(golden_store.store, golden_store.trust, cached=False).size
        print(f"{count} certificates, {size} entries of the log, {objects} objects", flush=True)
        campaign.run(Path(temporary) / "work")
        for what, number in sorted(campaign.counts.items()):
            print(f"{what}: {number}")
        print(f"nothing was called valid that is not, in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
