"""A store for each test."""

from pathlib import Path

import pytest

from tests.monitoring.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.open(tmp_path)
