"""All metrics that the exporter and the steps report, from a real store and from steps that have run."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from mbd.cli import group
from mbd.files import write_file
from mbd.monitoring.record_samples import purge_scan_samples
from mbd.monitoring.samples import Samples
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.outputs import step_run
from mbd.params import load_params
from mbd.serving.inference.routes import InferenceService
from mbd.steps.metrics_reporting import add_samples, reporting
from tests.deletion.models import home_with_models
from tests.integration.servers.process import free_port
from tests.monitoring.golden_store import GoldenStore, golden_leakage
from tests.monitoring.test_kubeflow_runs import Runs
from tests.pipelines.kubeflow_server import kubeflow_server
from tests.serving.inference.server import following

CERTIFIED = ("deletion.method=certified", "deletion.certified.finetune_epochs=1", "training.epochs=2")


def exporter_page(folder: Path) -> str:
    """Return the metrics page of a store with requests and certificates."""
    lifecycle_store = GoldenStore.open(folder)
    lifecycle_store.files("certified")
    lifecycle_store.certificate("certified")
    lifecycle_store.registration()
    lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30)
    with kubeflow_server() as kubeflow:
        runs = Runs(kubeflow, Samples())
        runs.add("mbd-reaudit", "FAILED")
        monitor = StoreMonitor(lifecycle_store.scanner(), 60, 30, runs.platform)
        monitor.scan()
    return monitor.text()


def inference_page(folder: Path) -> str:
    """Return the metrics of a model server that has loaded a release and refused a request."""
    golden_store = GoldenStore.open(folder)
    golden_store.files("exact")
    golden_store.certificate("exact")
    params = load_params(None, ["serving.inference.models=[sentiment]"])
    service = InferenceService(params, golden_store.store, golden_store.trust_file)
    with following(service, "sentiment") as client:
        client.infer("sentiment", {"text": np.zeros((1, 12), np.float32)})
        client.infer("sentiment", {"audio": np.zeros((1, 6), np.float32)})
    return service.samples.text()


def steps_pages(folder: Path) -> list[str]:
    """Return the metrics of steps: a deletion, its evaluation, attacks, a purge scan, a scheduled command."""
    model_workspace = home_with_models(folder)
    gateway = f"http://127.0.0.1:{free_port()}"  # nothing listens there, so all metrics go to textfiles
    output = ("monitoring.mode=push", f"monitoring.pushgateway={gateway}", f"monitoring.textfile={folder}/metrics")
    params = load_params(None, [*output, "monitoring.schedules={request-run: 86400}"])

    def mbd(*arguments: object) -> None:
        settings = [*output, *CERTIFIED, f"deletion.ledgers={folder}/ledgers", "evaluation.figures=false"]
        CliRunner().invoke(group, [*map(str, arguments), *(f"--set={setting}" for setting in settings)])

    mbd(
        "delete",
        "--features",
        model_workspace / "data",
        "--model",
        model_workspace / "model",
        "--modality",
        "audio",
        "--out",
        model_workspace / "gone",
    )
    mbd(
        "delete",
        "--features",
        model_workspace / "data",
        "--model",
        model_workspace / "nothing",
        "--modality",
        "audio",
        "--out",
        model_workspace / "x",
    )
    mbd(
        "evaluate",
        "--features",
        model_workspace / "data",
        "--model",
        model_workspace / "gone",
        "--out",
        model_workspace / "evaluation",
    )
    leakage = golden_leakage("surgery")
    with reporting("attack", params), step_run("attack", folder / "leakage", {}) as step:
        write_file(step.folder / "leakage.json", leakage.to_json())
    with reporting("purge-scan", params):
        scan = {"searched": ["cache"], "resurrected": ["cache"], "blind": list[str]()}
        add_samples(purge_scan_samples(datetime.now(UTC), tombstones=2, **scan))
    with reporting("request-run", params):
        pass
    return [file.read_text() for file in sorted((folder / "metrics").glob("*.prom"))]
