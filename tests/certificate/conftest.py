"""Models, deletions and keys that several test files share; none of them changes any."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.certificate.build import ModelWorkspace


@pytest.fixture(scope="session")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> "ModelWorkspace":
    """Data, a joint model, a lattice, and keys; deletions are made at first use."""
    from tests.certificate.build import make_home  # it trains, and the auditor's install cannot

    return make_home(tmp_path_factory.mktemp("home"))
