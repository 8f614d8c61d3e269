"""A batch is decided once, also if a worker is late, killed or deceived."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mbd.formats.request import Decision, Files, Lease, ModelLease
from mbd.production.batches import Batches
from mbd.production.request_store import RequestStore
from mbd.storage.folder import FolderStore
from mbd.trust.commitments import RequestKey

HOUR = 3600


@dataclass
class Time:
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def passes(self, seconds: int) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def batches(tmp_path: Path, time: Time) -> Batches:
    request_store = RequestStore(FolderStore(tmp_path / "store"), RequestKey(bytes(32)), clock=time)
    request_store.submit("sentiment", ["audio"], due_days=30, token="a")
    request_store.submit("sentiment", ["visual"], due_days=30, token="b")
    request_store.submit("another", ["audio"], due_days=30, token="c")
    return Batches(request_store, "sentiment")


def certified(batch: str, requests: list[str]) -> Decision:
    return Decision(
        batch=batch,
        outcome="certified",
        requests=tuple(requests),
        certificate="c" * 64,
        bundle=Files(files={}),
        model=Files(files={"model.json": "0" * 64}),
    )


def test_one_worker_at_a_time_holds_the_lease_of_a_model(batches: Batches, time: Time) -> None:
    lease = batches.take("first", HOUR)
    assert lease is not None
    assert batches.take("second", HOUR) is None
    assert len(batches.claim_all(lease)) == 2
    batches.release(lease)
    assert batches.take("second", HOUR) is not None
    time.passes(HOUR)
    assert batches.take("third", HOUR) is not None


def test_requests_of_a_killed_worker_are_taken_over(batches: Batches, time: Time) -> None:
    dead = batches.take("dead", HOUR)
    assert dead is not None
    batches.claim_all(dead)
    time.passes(HOUR)
    lease = batches.take("next", HOUR)
    assert lease is not None
    assert batches.abandon_undecided() == []
    assert {r.lease.batch for r in batches.claim_all(lease) if r.lease} == {lease.batch}


def test_a_worker_whose_lease_has_expired_cannot_decide(batches: Batches, time: Time) -> None:
    slow = batches.take("slow", HOUR)
    assert slow is not None
    asked = [request.id for request in batches.claim_all(slow)]
    time.passes(HOUR)
    lease = batches.take("next", HOUR)
    assert lease is not None
    batches.abandon_undecided()
    batches.claim_all(lease)
    assert batches.decide(certified(slow.batch, asked)).outcome == "abandoned"
    batches.end(slow.batch, asked, "failed")
    assert {batches.request_store.get(identifier).state for identifier in asked} == {"running"}


def test_a_decided_batch_is_finished_by_the_next_worker(batches: Batches, time: Time) -> None:
    dead = batches.take("dead", HOUR)
    assert dead is not None
    asked = [request.id for request in batches.claim_all(dead)]
    batches.decide(certified(dead.batch, asked))
    time.passes(HOUR)
    interrupted = batches.take("killed before it could finish", HOUR)
    assert interrupted is not None
    time.passes(HOUR)
    lease = batches.take("next", HOUR)
    assert lease is not None
    (decision,) = batches.abandon_undecided()
    batches.end(decision.batch, decision.requests, "certified", certificate=decision.certificate)
    assert batches.abandon_undecided() == []
    assert batches.claim_all(lease) == []
    assert {batches.request_store.get(identifier).certificate for identifier in asked} == {"c" * 64}


def test_a_failed_request_can_be_claimed_again(batches: Batches) -> None:
    lease = batches.take("w", HOUR)
    assert lease is not None
    asked = [request.id for request in batches.claim_all(lease)]
    batches.end(lease.batch, asked[:1], "failed", note="no disk")
    batches.end(lease.batch, asked[1:], "refused", note="the gate")
    assert [request.id for request in batches.claim_all(lease)] == asked[:1]
    assert batches.claim_all(lease, but=asked) == []


def test_a_renewed_lease_does_not_expire(batches: Batches, time: Time) -> None:
    lease = batches.take("busy", HOUR)
    assert lease is not None
    time.passes(HOUR - 1)
    assert batches.renew(lease, HOUR)
    time.passes(HOUR - 1)
    assert batches.take("next", HOUR) is None
    time.passes(1)
    assert batches.take("next", HOUR) is not None
    assert not batches.renew(lease, HOUR)


def test_a_decision_that_is_not_valid_counts_as_abandoned(
    batches: Batches, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    dead = batches.take("dead", HOUR)
    assert dead is not None
    asked = [request.id for request in batches.claim_all(dead)]
    batches.request_store.store.create(f"batches/{dead.batch}.json", b"not a decision")
    time.passes(HOUR)
    lease = batches.take("next", HOUR)
    assert lease is not None
    assert batches.abandon_undecided() == []
    assert [request.id for request in batches.claim_all(lease)] == asked
    assert f"batches/{dead.batch}.json" in caplog.text


def test_a_decision_of_another_batch_counts_as_abandoned(batches: Batches) -> None:
    lease = batches.take("w", HOUR)
    assert lease is not None
    forged = certified("0" * 16, ["1" * 16]).to_bytes()
    batches.request_store.store.create(f"batches/{lease.batch}.json", forged)
    assert batches.decide(certified(lease.batch, [])).outcome == "abandoned"


@pytest.mark.parametrize(
    "content", [b"not a lease", b'{"format": "urn:missing-by-design:model-state:v1", "lease": null}']
)
def test_an_invalid_lease_blocks_no_worker(batches: Batches, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    batches.request_store.store.create("models/sentiment.json", content)
    lease = batches.take("w", HOUR)
    assert lease is not None
    assert "models/sentiment.json" in caplog.text
    assert batches.take("second", HOUR) is None


def test_a_lease_without_end_blocks_no_worker(batches: Batches, time: Time) -> None:
    endless = Lease(worker="planted", until=time.at + timedelta(days=9999), batch="0" * 16)
    batches.request_store.store.create("models/sentiment.json", ModelLease(lease=endless).to_bytes())
    assert batches.take("w", HOUR) is not None
