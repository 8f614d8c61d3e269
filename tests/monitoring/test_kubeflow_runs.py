"""How runs ended on Kubeflow, asked of an API over real HTTP."""

from collections.abc import Iterator

import pytest

from mbd.monitoring import metrics
from mbd.monitoring.kubeflow_runs import add_last_runs
from mbd.monitoring.samples import Samples
from mbd.params.platform import PlatformSettings
from tests.pipelines.kubeflow_server import Kubeflow, kubeflow_server


class Runs:
    """A Kubeflow with an experiment of ours and one of others."""

    def __init__(self, kubeflow: Kubeflow, samples: Samples) -> None:
        self.kubeflow, self.samples = kubeflow, samples
        self.platform = PlatformSettings(kubeflow_host=kubeflow.url)
        names = (self.platform.experiment, "of-others")
        made = [kubeflow.new(kubeflow.experiments, "experiment_id", display_name=name) for name in names]
        self.ours, self.others = (experiment["experiment_id"] for experiment in made)
        self.pipelines: dict[str, str] = {}

    def add(self, pipeline: str, state: str, schedule: str | None = None, *, others: bool = False) -> None:
        """Add a run; the API lists the newest first, so the first that is added is the newest."""
        if pipeline not in self.pipelines:
            made = self.kubeflow.new(self.kubeflow.pipelines, "pipeline_id", display_name=pipeline)
            self.pipelines[pipeline] = made["pipeline_id"]
        version = {"pipeline_id": self.pipelines[pipeline], "pipeline_version_id": "1"}
        own = {"recurring_run_id": schedule} if schedule else {}
        own |= {"experiment_id": self.others if others else self.ours}
        self.kubeflow.new(self.kubeflow.runs, "run_id", state=state, pipeline_version_reference=version, **own)

    def failures(self, pipeline: str) -> float | None:
        """Ask Kubeflow; return what the metric says then."""
        add_last_runs(self.samples, self.platform)
        return self.samples.value(metrics.KUBEFLOW_FAILED, pipeline=pipeline)


@pytest.fixture
def runs() -> Iterator[Runs]:
    with kubeflow_server(page=100) as kubeflow:
        yield Runs(kubeflow, Samples())


def test_the_last_run_of_each_pipeline_that_has_ended_counts(runs: Runs) -> None:
    for pipeline, *states in (("reaudit", "FAILED", "SUCCEEDED"), ("train", "RUNNING", "SUCCEEDED", "FAILED")):
        for state in states:
            runs.add(f"mbd-{pipeline}", state)
    runs.add("of-others", "FAILED")
    assert (runs.failures("reaudit"), runs.failures("train"), runs.failures("of-others")) == (1, 0, None)


def test_a_schedule_that_fails_is_not_hidden_by_another_that_succeeds(runs: Runs) -> None:
    for schedule in ("first", "second"):
        job = {"recurring_run_id": schedule, "experiment_id": runs.ours}
        runs.kubeflow.new(runs.kubeflow.recurring, "recurring_run_id", **job)
    runs.add("mbd-reaudit", "SUCCEEDED", "second")
    runs.add("mbd-reaudit", "FAILED", "first")
    runs.add("mbd-reaudit", "FAILED", "removed")
    assert runs.failures("reaudit") == 1
    runs.kubeflow.recurring[0]["status"] = "DISABLED"
    assert runs.failures("reaudit") == 0


def test_runs_of_other_experiments_do_not_push_ours_out(runs: Runs) -> None:
    for _ in range(120):
        runs.add("mbd-train", "SUCCEEDED", others=True)
    runs.add("mbd-train", "FAILED")
    assert runs.failures("train") == 1


def test_a_failure_ends_when_its_run_was_removed(runs: Runs) -> None:
    runs.add("mbd-reaudit", "FAILED")
    assert runs.failures("reaudit") == 1
    runs.kubeflow.runs.clear()
    assert runs.failures("reaudit") == 0


def test_where_kubeflow_does_not_answer_the_last_known_values_stay(runs: Runs) -> None:
    runs.add("mbd-reaudit", "FAILED")
    assert (runs.failures("reaudit"), runs.samples.value(metrics.KUBEFLOW_UP)) == (1, 1)
    runs.kubeflow.failing = 500
    assert (runs.failures("reaudit"), runs.samples.value(metrics.KUBEFLOW_UP)) == (1, 0)
