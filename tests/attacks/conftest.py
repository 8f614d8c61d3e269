"""Models to attack, trained once."""

from pathlib import Path

import pytest

from tests.attacks.models import audited


@pytest.fixture(scope="session")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data`, and of audio: `model`, `deleted` (surgery) and `reference`."""
    return audited(tmp_path_factory.mktemp("audited"))
