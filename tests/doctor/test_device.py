"""The device as torch sees it, without torch in this process."""

import sys

import pytest

from mbd.doctor.device import device
from mbd.doctor.finding import CheckState, ask_child


def test_the_processor_is_there_and_torch_stays_in_the_child() -> None:
    loaded = "torch" in sys.modules
    (finding,) = ask_child("mbd.doctor.device", "auto", seconds=60)
    assert finding.state is CheckState.OK
    assert "threads" in finding.found
    assert ("torch" in sys.modules) == loaded


def test_a_gpu_that_is_asked_for_and_missing_is_a_failure() -> None:
    torch = pytest.importorskip("torch")
    expected = CheckState.OK if torch.cuda.is_available() else CheckState.FAILED
    assert device("cuda").state is expected


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = device("auto")
    assert finding.state is CheckState.NOT_CONFIGURED
    assert "[train]" in (finding.to_do or "")
