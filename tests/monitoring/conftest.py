"""A new store for each test."""

from pathlib import Path

import pytest

from tests.monitoring.golden_store import GoldenStore


@pytest.fixture
def lifecycle_store(tmp_path: Path) -> GoldenStore:
    return GoldenStore.open(tmp_path)
