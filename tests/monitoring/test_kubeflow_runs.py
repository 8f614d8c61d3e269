"""How runs ended on Kubeflow, asked of an API over real HTTP."""

from mbd.monitoring import metrics
from mbd.monitoring.kubeflow_runs import add_last_runs
from mbd.monitoring.samples import Samples
from mbd.params.platform import PlatformSettings
from tests.pipelines.kubeflow_server import Kubeflow, kubeflow_server


def failed_run(kubeflow: Kubeflow, pipeline: str = "mbd-reaudit", state: str = "FAILED") -> None:
    """Add a run of a pipeline that has ended, before which it had another one."""
    made = kubeflow.new(kubeflow.pipelines, "pipeline_id", display_name=pipeline)
    version = {"pipeline_id": made["pipeline_id"], "pipeline_version_id": "1"}
    kubeflow.new(kubeflow.runs, "run_id", display_name="later", state=state, pipeline_version_reference=version)
    kubeflow.new(kubeflow.runs, "run_id", display_name="first", state="SUCCEEDED", pipeline_version_reference=version)


def test_the_last_run_of_each_pipeline_that_has_ended_counts() -> None:
    samples = Samples()
    with kubeflow_server(page=100) as kubeflow:
        failed_run(kubeflow)
        failed_run(kubeflow, "mbd-train", "RUNNING")  # goes on: the one before counts
        failed_run(kubeflow, "of-others")
        add_last_runs(samples, PlatformSettings(kubeflow_host=kubeflow.url))
        assert samples.value(metrics.KUBEFLOW_UP) == 1
        assert samples.value(metrics.KUBEFLOW_FAILED, pipeline="reaudit") == 1
        assert samples.value(metrics.KUBEFLOW_FAILED, pipeline="train") == 0
        assert samples.value(metrics.KUBEFLOW_FAILED, pipeline="of-others") is None
        kubeflow.runs.clear()
        kubeflow.failing = 500
        add_last_runs(samples, PlatformSettings(kubeflow_host=kubeflow.url))
    assert samples.value(metrics.KUBEFLOW_UP) == 0
    assert samples.value(metrics.KUBEFLOW_FAILED, pipeline="reaudit") == 1  # the last known
