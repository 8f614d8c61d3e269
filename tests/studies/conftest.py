"""Cells that several tests read: a regression like the paper's, and something quite different."""

from collections.abc import Callable

import pytest

from studies.layout import Layout
from studies.plan import StudyPlan
from tests.once import once
from tests.studies.cells import in_folder, make_cells, small_plan
from tests.studies.deletions import make_deletions, with_deletions


def made_once(factory: pytest.TempPathFactory, name: str, plan: StudyPlan, make: Callable[[Layout], Layout]) -> Layout:
    """Make the cells of a plan, once in a run. They are not to be changed."""
    return in_folder(once(factory, name, lambda folder: make(in_folder(folder, plan))), plan)


@pytest.fixture(scope="session")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Synthetic regression on text, audio and visual: three seeds, all variants."""
    return made_once(tmp_path_factory, "sentiment", small_plan(), make_cells)


@pytest.fixture(scope="session")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Data of one's own with three classes and two modalities of other names: one seed, one variant."""
    dims = {"voice": 9, "face": 7}
    plan = small_plan("talks", name="talks", dims=dims, classes=3, seeds=(4,), variants=("no-fusion",))
    return made_once(tmp_path_factory, "talks", plan, make_cells)


@pytest.fixture(scope="session")
def revoked(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Audio deleted in every way from models of one seed, and two scans."""
    plan = with_deletions(
        small_plan(seeds=(0,)),
        *("surgery", "uncut", "printed-1", "certified-1", "exact"),
        scans=("budget-0_01",),
        calibrations=(32,),
    )
    return made_once(tmp_path_factory, "revoked", plan, make_deletions)


@pytest.fixture(scope="session")
def revoked_talks(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The face deleted from models of three classes and two modalities."""
    dims = {"voice": 9, "face": 7}
    plan = small_plan("talks", name="talks", dims=dims, classes=3, seeds=(4,))
    plan = with_deletions(plan, "printed-1", "exact")
    return made_once(tmp_path_factory, "revoked_talks", plan, make_deletions)
