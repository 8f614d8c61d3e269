"""Models, deletions and keys that several test files share; none of them changes any."""

import pytest

from tests.certificate.build import ModelWorkspace, make_home


@pytest.fixture(scope="session")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    """Data, a joint model, a lattice, and keys; deletions are made at first use."""
    return make_home(tmp_path_factory.mktemp("home"))
