"""Odd files are errors of ours, not tracebacks, whatever reads them; `make fuzz` looks for longer."""

from pathlib import Path

import pytest

from tests.fuzz.fuzzer import fuzz
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_fuzzing_starts_from_is_valid(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for content in target.seeds():
        (tmp_path / target.file).write_bytes(content)
        target.parse(tmp_path / target.file)


@pytest.mark.parametrize("name", TARGETS)
def test_a_changed_file_is_read_or_refused(name: str) -> None:
    report = fuzz(name, inputs=150, seed=1)
    assert report.findings == []
    assert report.within_memory, report
