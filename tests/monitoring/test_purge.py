"""What a search for purged files tells: 0 where a place is clean, so that an alert ends."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.certificate.layout import object_name
from mbd.certificate.trust import now
from mbd.cli import group
from mbd.monitoring import metrics
from mbd.monitoring.purge import add_purge_scan
from mbd.monitoring.samples import Samples
from tests.monitoring.golden_store import GoldenStore
from tests.monitoring.page import ExporterPage


def test_every_place_is_told_clean_ones_too() -> None:
    samples = Samples()
    places = ["cache", "bucket", "bucket"]
    add_purge_scan(samples, now(), tombstones=5, searched=places, resurrected=["bucket"] * 3, blind=["cache"])
    page = ExporterPage(samples.text())
    assert page[metrics.RESURRECTED] == {("cache",): 0, ("bucket",): 3}
    assert page[metrics.BLIND] == {("cache",): 1, ("bucket",): 0}
    assert page[metrics.TOMBSTONES] == {(): 5}


def test_the_command_that_searches_tells_what_it_found(
    lifecycle_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lifecycle_store.store.create(object_name("a" * 64), b"something else")
    settings = ["--set=monitoring.mode=textfile", f"--set=monitoring.textfile={tmp_path}/metrics"]
    CliRunner().invoke(group, ["purge", "scan", "--store", lifecycle_store.url, *settings])
    assert [file.name for file in (tmp_path / "metrics").iterdir()] == ["mbd-purge-scan-sentiment.prom"]
    page = ExporterPage((tmp_path / "metrics" / "mbd-purge-scan-sentiment.prom").read_text())
    assert page[metrics.RESURRECTED]
    assert set(page[metrics.RESURRECTED].values()) == {0}
    assert page[metrics.PURGE_SCAN]
