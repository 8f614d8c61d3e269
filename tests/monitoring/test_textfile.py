"""Textfiles: a failure leaves the last success as it was."""

from pathlib import Path

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.monitoring.textfile import write_textfile
from tests.monitoring.page import ExporterPage

GROUP = {"step": "delete", "model": "sentiment"}


def success(at: float) -> Samples:
    samples = Samples()
    samples.set(metrics.STEP_SUCCESS, at, **GROUP)
    return samples


def failure(at: float, reason: str) -> Samples:
    samples = Samples()
    samples.set(metrics.STEP_FAILURE, at, reason=reason, **GROUP)
    return samples


def test_a_failure_leaves_the_last_success_as_it_was(tmp_path: Path) -> None:
    write_textfile(tmp_path, GROUP, success(100))
    write_textfile(tmp_path, GROUP, failure(200, "refused"))
    file = write_textfile(tmp_path, GROUP, failure(300, "bad_data"))
    page = ExporterPage(file.read_text())
    assert page[metrics.STEP_SUCCESS] == {("delete", "sentiment"): 100}
    assert page[metrics.STEP_FAILURE] == {("delete", "sentiment", "bad_data"): 300}


def test_each_step_has_a_file_of_its_own(tmp_path: Path) -> None:
    write_textfile(tmp_path, GROUP, success(100))
    write_textfile(tmp_path, GROUP | {"step": "attack"}, success(100))
    assert {file.name for file in tmp_path.iterdir()} == {"mbd-delete-sentiment.prom", "mbd-attack-sentiment.prom"}


def test_a_file_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "mbd-delete-sentiment.prom").write_bytes(b"mbd_step{ what\xff")
    file = write_textfile(tmp_path, GROUP, success(100))
    assert ExporterPage(file.read_text())[metrics.STEP_SUCCESS] == {("delete", "sentiment"): 100}
