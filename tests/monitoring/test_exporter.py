"""The exporter: what its page says, what it says of itself, how it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mbd.certificate.layout import certificate_name
from mbd.monitoring import metrics
from mbd.monitoring.exporter import Exporter, StoreMonitor
from mbd.requests.record import Lease
from tests.monitoring.golden_store import GoldenStore, days_from_now, golden, seconds
from tests.monitoring.page import ExporterPage


def looked(watch: StoreMonitor) -> ExporterPage:
    watch.look()
    return ExporterPage(watch.text())


@contextmanager
def served(watch: StoreMonitor) -> Iterator[str]:
    server = Exporter("127.0.0.1", 0, watch)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        watch.stop()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for(what: str, url: str) -> None:
    end = time.monotonic() + 20
    while what not in get(f"{url}/metrics")[1]:
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_requests_by_state_with_age_and_deadline(lifecycle_store: GoldenStore) -> None:
    request_store = lifecycle_store.request_store
    first = request_store.submit("sentiment", ["audio"], due_days=30, token="a")
    request_store.submit("sentiment", ["visual"], due_days=10, token="b")
    request_store.cancel(request_store.submit("other", ["audio"], due_days=1, token="c").id)
    request_store.claim(first, Lease(worker="w", until=days_from_now(1), batch="b"))
    page = looked(lifecycle_store.watch())
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


def test_ages_move_on_between_two_looks(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30)
    watch = lifecycle_store.watch()
    before = looked(watch)
    time.sleep(0.05)
    after = ExporterPage(watch.text())
    assert after[metrics.OLDEST_PENDING]["sentiment",] > before[metrics.OLDEST_PENDING]["sentiment",]
    assert after[metrics.NEAREST_DEADLINE]["sentiment",] < before[metrics.NEAREST_DEADLINE]["sentiment",]


def test_certificates_by_kind_and_state_and_the_date_of_the_next_audit(lifecycle_store: GoldenStore) -> None:
    model = golden("surgery").predicate.model
    lifecycle_store.revoke(lifecycle_store.certificate("surgery"))
    replaced = lifecycle_store.certificate("exact", days=10)
    lifecycle_store.certificate("exact", days=20, supersedes=replaced)
    audited = lifecycle_store.certificate("certified", days=30, model="another")
    later = lifecycle_store.certificate(
        "surgery", days=0.5, model="late", issued=days_from_now(-40), reaudit_by=days_from_now(-1)
    )
    lifecycle_store.audit(audited, days=100)
    page = looked(lifecycle_store.watch())
    counts = {key: count for key, count in page[metrics.CERTIFICATES].items() if count}
    assert counts == {
        (model, "empirical", "revoked"): 1,
        (model, "exact", "superseded"): 1,
        (model, "exact", "valid"): 1,
        ("another", "certified", "valid"): 1,
        ("late", "empirical", "overdue"): 1,
    }
    due = page[metrics.REAUDIT_BY]
    assert due[model, "audio", "exact"] == pytest.approx(seconds(days_from_now(20)), abs=60)
    assert due["another", "audio", "certified"] == pytest.approx(seconds(days_from_now(100)), abs=60)
    assert due["late", "audio", "empirical"] < time.time()
    assert later
    assert page[metrics.LOG_ENTRIES][()] == 7
    assert page[metrics.LOG_MISSING][()] == 0


def test_budget_and_evidence_of_the_last_certificate(lifecycle_store: GoldenStore) -> None:
    budget = golden("certified").predicate.budget
    assert budget
    lifecycle_store.certificate("certified")
    page = looked(lifecycle_store.watch())
    model = golden("certified").predicate.model
    assert page[metrics.BUDGET_SPENT] == {(model,): budget.lineage.epsilon_after}
    assert page[metrics.BUDGET_LIMIT] == {(model,): budget.lineage.limit}
    assert {role for *_, role in page[metrics.LEAKAGE]} >= {"after", "reference"}
    assert {attack for _, _, attack, _ in page[metrics.LEAKAGE]} >= {"whitebox", "blackbox", "membership"}
    assert page[metrics.UTILITY]
    assert page[metrics.GATE_ROOM]


def test_the_last_audit_is_the_newer_evidence(lifecycle_store: GoldenStore) -> None:
    leakage = golden("surgery").predicate.evidence.leakage
    assert leakage
    certificate, watch = lifecycle_store.certificate(issued=days_from_now(-1)), lifecycle_store.watch()
    assert len({attack for _, _, attack, _ in looked(watch)[metrics.LEAKAGE]}) > 1
    lifecycle_store.audit(certificate, attacks=leakage.attacks[:1])
    assert {attack for _, _, attack, _ in looked(watch)[metrics.LEAKAGE]} == {leakage.attacks[0].attack}


def test_what_does_not_verify_is_counted_and_so_is_what_is_missing(lifecycle_store: GoldenStore) -> None:
    damaged, gone, watch = lifecycle_store.certificate(), lifecycle_store.certificate("exact"), lifecycle_store.watch()
    assert set(looked(watch)[metrics.UNVERIFIED].values()) == {0}
    (lifecycle_store.folder / "store" / certificate_name(damaged)).write_bytes(b"{}")
    (lifecycle_store.folder / "store" / certificate_name(gone)).unlink()
    page = looked(watch)
    assert page[metrics.UNVERIFIED] == {("certificate",): 2, ("request",): 0, ("log",): 0}
    assert page[metrics.LOG_MISSING][()] == 2


def test_a_store_that_goes_away_is_told_and_what_was_known_stays(lifecycle_store: GoldenStore) -> None:
    said: list[str] = []
    lifecycle_store.certificate()
    watch = lifecycle_store.watch(said)
    known = looked(watch)
    assert known[metrics.STORE_UP][()] == 1
    (lifecycle_store.folder / "store").rename(lifecycle_store.folder / "away")
    away = looked(watch)
    assert away[metrics.STORE_UP][()] == 0
    assert away[metrics.CERTIFICATES] == known[metrics.CERTIFICATES]
    assert away[metrics.SCAN_TIME] == known[metrics.SCAN_TIME]
    assert away[metrics.SCAN_FAILURES][()] == 1
    assert "there is no folder" in said[0]
    (lifecycle_store.folder / "away").rename(lifecycle_store.folder / "store")
    back = looked(watch)
    assert back[metrics.STORE_UP][()] == 1
    assert back[metrics.SCAN_READ] == known[metrics.SCAN_READ]


def test_pages_and_when_they_answer(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    watch = lifecycle_store.watch()
    with served(watch) as url:
        assert get(f"{url}/healthz")[0] == 503
        assert get(f"{url}/readyz")[0] == 503
        watch.start()
        wait_for("mbd_store_up 1.0", url)
        assert get(f"{url}/healthz") == (200, "ok\n")
        assert get(f"{url}/readyz") == (200, "ok\n")
        assert get(f"{url}/nothing")[0] == 404
        lifecycle_store.certificate("exact")
        wait_for("mbd_log_entries 2.0", url)
    assert not watch.alive


def test_it_is_ready_although_the_store_is_away_so_that_this_is_told(lifecycle_store: GoldenStore) -> None:
    (lifecycle_store.folder / "store").rmdir()
    watch = lifecycle_store.watch()
    with served(watch) as url:
        watch.start()
        wait_for("mbd_store_up 0.0", url)
        assert get(f"{url}/readyz")[0] == 200


def command(lifecycle_store: GoldenStore, *arguments: str) -> list[str]:
    return [sys.executable, "-c", "from mbd.cli import main; main()", *_options(lifecycle_store), *arguments]


def _options(lifecycle_store: GoldenStore) -> list[str]:
    return ["exporter", "--store", lifecycle_store.url, "--trust", str(lifecycle_store.trust_file)]


def test_the_command_ends_well_when_it_is_told_to(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    process = subprocess.Popen(command(lifecycle_store, "--port", "0"), stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout
        url = process.stdout.readline().split("/metrics")[0]
        wait_for("mbd_store_up 1.0", url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_port_that_is_taken_is_a_wrong_option(lifecycle_store: GoldenStore) -> None:
    with served(lifecycle_store.watch()) as url:
        port = url.rpartition(":")[2]
        done = subprocess.run(command(lifecycle_store, "--port", port), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing can be served here" in done.stderr


def test_once_prints_the_page_without_torch(lifecycle_store: GoldenStore, tmp_path: Path) -> None:
    lifecycle_store.certificate()
    script = (
        "import sys; from mbd.cli import group\n"
        f"group({[*_options(lifecycle_store), '--once']!r}, prog_name='mbd', standalone_mode=False)\n"
        "assert not {'torch', 'dvc', 'kfp', 'sklearn', 'scipy', 'matplotlib'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    page = ExporterPage(done.stdout)
    assert page[metrics.STORE_UP][()] == 1
    assert page[metrics.BUILD]
