"""The store monitor: what its metrics say of a store, and what happens when that is away."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.certificate.compose import compose_supersession
from mbd.formats.layout import certificate_name
from mbd.formats.registration import RegisteredReference
from mbd.formats.request import Lease
from mbd.history.replay import read_history
from mbd.monitoring import metrics
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.records import now
from mbd.trust.commitments import LINEAGE_KEY
from tests.command import run_mbd
from tests.monitoring.golden_store import GoldenStore, days_from_now, golden, golden_leakage, seconds
from tests.monitoring.page import ExporterPage


def scanned_page(monitor: StoreMonitor) -> ExporterPage:
    monitor.scan()
    return ExporterPage(monitor.text())


def test_requests_are_counted_by_state_with_age_and_deadline(lifecycle_store: GoldenStore) -> None:
    request_store = lifecycle_store.request_store
    first = request_store.submit("sentiment", ["audio"], due_days=30, token="a")
    request_store.submit("sentiment", ["visual"], due_days=10, token="b")
    request_store.cancel(request_store.submit("other", ["audio"], due_days=1, token="c").id)
    request_store.claim(first, Lease(worker="w", until=days_from_now(1), batch="b" * 16))
    page = scanned_page(lifecycle_store.monitor())
    states = {key: count for key, count in page[metrics.REQUESTS].items() if count}
    assert states == {("sentiment", "running"): 1, ("sentiment", "received"): 1, ("other", "cancelled"): 1}
    assert page[metrics.REQUESTS]["sentiment", "certified"] == 0
    assert page[metrics.OLDEST_PENDING].keys() == {("sentiment",)}
    assert page[metrics.NEAREST_DEADLINE]["sentiment",] == pytest.approx(10 * 86400, abs=60)
    assert page[metrics.REQUEST_EVENT].keys() == {
        ("sentiment", "audio", "received"),
        ("sentiment", "audio", "running"),
        ("sentiment", "visual", "received"),
        ("other", "audio", "received"),
        ("other", "audio", "cancelled"),
    }


def test_a_request_whose_certificate_was_withdrawn_is_open_again_with_its_old_deadline(
    lifecycle_store: GoldenStore,
) -> None:
    requests, model = lifecycle_store.request_store, golden("exact").predicate.model
    submitted, digest = requests.submit(model, ["audio"], due_days=10), lifecycle_store.certificate("exact")
    requests.change(submitted.id, lambda r: r.moved("certified", "w", now(), certificate=digest))
    settings = {"store.url": lifecycle_store.url, "certificate.trust": lifecycle_store.trust_file}
    settings["certificate.lineage_key"] = lifecycle_store.folder / "keys" / LINEAGE_KEY
    listed = ("request", "list", "--open", *(part for key, x in settings.items() for part in ("--set", f"{key}={x}")))
    monitor = lifecycle_store.monitor()
    assert (model,) not in scanned_page(monitor)[metrics.NEAREST_DEADLINE]
    assert "no requests" in run_mbd(*listed).output
    lifecycle_store.revoke(digest)
    page = scanned_page(monitor)
    assert page[metrics.NEAREST_DEADLINE][model,] == pytest.approx(10 * 86400, abs=60)
    assert (page[metrics.REQUESTS][model, "certified"], page[metrics.REQUESTS][model, "running"]) == (0, 1)
    assert submitted.id in run_mbd(*listed).output


def test_ages_advance_between_two_scans(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30)
    monitor = lifecycle_store.monitor()
    before = scanned_page(monitor)
    time.sleep(0.05)
    after = ExporterPage(monitor.text())
    assert after[metrics.OLDEST_PENDING]["sentiment",] > before[metrics.OLDEST_PENDING]["sentiment",]
    assert after[metrics.NEAREST_DEADLINE]["sentiment",] < before[metrics.NEAREST_DEADLINE]["sentiment",]


def test_certificates_are_counted_by_kind_and_state_with_the_date_of_the_next_audit(
    lifecycle_store: GoldenStore,
) -> None:
    model = golden("surgery").predicate.model
    lifecycle_store.revoke(lifecycle_store.certificate("surgery"))
    replaced = lifecycle_store.certificate("exact", days=10)
    lifecycle_store.certificate("exact", days=20, supersedes=replaced)
    audited = lifecycle_store.certificate("certified", days=30, model="another")
    later = lifecycle_store.certificate(
        "surgery", days=0.5, model="late", issued=days_from_now(-40), reaudit_by=days_from_now(-1)
    )
    lifecycle_store.audit(audited, days=100, kind="certified")
    page = scanned_page(lifecycle_store.monitor())
    counts = {key: count for key, count in page[metrics.CERTIFICATES].items() if count}
    assert counts == {
        (model, "empirical", "revoked", "withdrawn"): 1,
        (model, "exact", "superseded", "replaced"): 1,
        (model, "exact", "valid", "verified"): 1,
        ("another", "certified", "valid", "verified"): 1,
        ("late", "empirical", "overdue", "not verified"): 1,
    }
    due = page[metrics.REAUDIT_BY]
    assert due[model, "audio", "exact"] == pytest.approx(seconds(days_from_now(20)), abs=60)
    assert due["another", "audio", "certified"] == pytest.approx(seconds(days_from_now(100)), abs=60)
    assert due["late", "audio", "empirical"] < time.time()
    assert later
    assert page[metrics.LOG_ENTRIES][()] == 7
    assert page[metrics.LOG_MISSING][()] == 0


def test_budget_and_evidence_are_those_of_the_last_certificate(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.files("surgery", "certified")
    budget = golden("certified").predicate.budget
    assert budget
    lifecycle_store.certificate("certified")
    page = scanned_page(lifecycle_store.monitor())
    model = golden("certified").predicate.model
    assert page[metrics.BUDGET_SPENT] == {(model,): budget.lineage.epsilon_after}
    assert page[metrics.BUDGET_LIMIT] == {(model,): budget.lineage.limit}
    assert {role for *_, role in page[metrics.LEAKAGE]} >= {"after", "reference"}
    assert {attack for _, _, attack, _ in page[metrics.LEAKAGE]} >= {"whitebox", "blackbox", "membership"}
    assert page[metrics.UTILITY]
    assert page[metrics.GATE_ROOM]


def test_a_newer_audit_replaces_the_evidence_of_the_certificate(lifecycle_store: GoldenStore) -> None:
    leakage = golden_leakage("surgery")
    lifecycle_store.files("surgery")
    certificate, monitor = lifecycle_store.certificate(issued=days_from_now(-1)), lifecycle_store.monitor()
    before = scanned_page(monitor)[metrics.LEAKAGE]
    first = leakage.attacks[0].model_copy(update={"before": None, "blind": None})
    lifecycle_store.audit(certificate, attacks=(first, *leakage.attacks[1:]))
    after = scanned_page(monitor)[metrics.LEAKAGE]
    assert {role for *_, role in before.keys() - after.keys()} == {"before"}


def test_invalid_and_missing_certificates_are_counted(lifecycle_store: GoldenStore) -> None:
    damaged, gone, monitor = (
        lifecycle_store.certificate(),
        lifecycle_store.certificate("exact"),
        lifecycle_store.monitor(),
    )
    assert set(scanned_page(monitor)[metrics.UNVERIFIED].values()) == {0}
    (lifecycle_store.folder / "store" / certificate_name(damaged)).write_bytes(b"{}")
    (lifecycle_store.folder / "store" / certificate_name(gone)).unlink()
    page = scanned_page(monitor)
    assert page[metrics.UNVERIFIED] == {("certificate",): 2, ("request",): 0, ("log",): 0}
    assert page[metrics.LOG_MISSING][()] == 2


def test_an_unreachable_store_is_reported_and_the_last_values_stay(
    lifecycle_store: GoldenStore, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle_store.certificate()
    monitor = lifecycle_store.monitor()
    known = scanned_page(monitor)
    assert known[metrics.STORE_UP][()] == 1
    (lifecycle_store.folder / "store").rename(lifecycle_store.folder / "away")
    away = scanned_page(monitor)
    assert away[metrics.STORE_UP][()] == 0
    assert away[metrics.CERTIFICATES] == known[metrics.CERTIFICATES]
    assert away[metrics.SCAN_TIME] == known[metrics.SCAN_TIME]
    assert away[metrics.SCAN_FAILURES][()] == 1
    assert "the folder of the store does not exist" in caplog.text
    (lifecycle_store.folder / "away").rename(lifecycle_store.folder / "store")
    back = scanned_page(monitor)
    assert back[metrics.STORE_UP][()] == 1
    assert back[metrics.SCAN_READ] == known[metrics.SCAN_READ]


def test_a_scan_can_be_asked_for_and_its_result_is_handed_on(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    monitor = StoreMonitor(lifecycle_store.scanner(), interval=3600)
    sizes: list[int] = []
    monitor.listeners += [lambda _: 1 / 0, lambda snapshot: sizes.append(snapshot.history.size)]  # type: ignore[list-item]
    monitor.start()
    assert monitor.scanned.wait(20)
    lifecycle_store.certificate("exact")
    monitor.wake()
    end = time.monotonic() + 20
    while sizes != [1, 2]:
        assert time.monotonic() < end
        time.sleep(0.02)
    monitor.stop()
    assert not monitor.alive


def test_once_prints_the_page_without_torch(lifecycle_store: GoldenStore, tmp_path: Path) -> None:
    lifecycle_store.certificate()
    arguments = ["exporter", "--store", lifecycle_store.url, "--trust", str(lifecycle_store.trust_file), "--once"]
    script = (
        "import sys; from mbd.cli import group\n"
        f"group({arguments!r}, prog_name='mbd', standalone_mode=False)\n"
        "assert not {'torch', 'dvc', 'kfp', 'sklearn', 'scipy', 'matplotlib', 'fastapi'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    page = ExporterPage(done.stdout)
    assert page[metrics.STORE_UP][()] == 1
    assert page[metrics.BUILD]


def test_models_are_shown_with_what_is_current_revoked_ready_and_due(tmp_path: Path) -> None:
    store = GoldenStore.open(tmp_path)
    name, inputs = golden("exact").predicate.model, tuple(golden("exact").predicate.structure.inputs)
    reference = RegisteredReference(without=inputs[:1], weights="1" * 64, record="2" * 64)
    store.registration(references=(reference,))
    monitor = store.monitor()
    monitor.scan()
    page = ExporterPage(monitor.text())
    registered = read_history(store.store, store.trust, cached=False).model(name).current
    assert registered is not None
    assert page[metrics.MODEL_RELEASED] == {(name, "registered"): seconds(registered.issued)}
    assert page[metrics.MODEL_USABLE] == {(name,): 1}
    assert page[metrics.MODEL_REFERENCE] == {(name, m): float(m == inputs[0]) for m in inputs}
    assert page[metrics.RETRAIN_BY] == {(name,): seconds(registered.issued + timedelta(days=30))}
    deleted = golden("exact").predicate.deleted
    gone = deleted.model_copy(update={"modalities": inputs[:1], "revoked": inputs[:1]})
    revoked = store.certificate("surgery", model=name, deleted=gone)
    store.publish(compose_supersession(revoked, "3" * 64, "for the test", now()))
    monitor.scan()
    page = ExporterPage(monitor.text())
    assert page[metrics.MODEL_REVOKED] == {(name, inputs[0]): 1}
    assert page[metrics.MODEL_USABLE] == {(name,): 0}
