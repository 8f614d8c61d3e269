"""Everything that the exporter and the steps really tell, from a store and from steps that have run."""

from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from mbd.cli import group
from mbd.files import to_json, write_file
from mbd.monitoring.purge import add_purge_scan
from mbd.params import load_params
from mbd.steps.reporting import reporting, tell
from mbd.steps.step import step_run
from tests.deletion.models import home_with_models
from tests.integration.servers.process import free_port
from tests.monitoring.shop import Shop, golden

CERTIFIED = ("deletion.method=certified", "deletion.certified.finetune_epochs=1", "training.epochs=2")


def exporter_page(folder: Path) -> str:
    """Return the page of an exporter whose store holds requests and certificates."""
    shop = Shop.open(folder)
    shop.certificate("certified")
    shop.book.submit("sentiment", ["audio"], due_days=30)
    watch = shop.watch()
    watch.look()
    return watch.text()


def steps_pages(folder: Path) -> list[str]:
    """Return what steps tell: a deletion, its evaluation, attacks, a purge scan, a scheduled command."""
    home = home_with_models(folder)
    gateway = f"http://127.0.0.1:{free_port()}"  # nobody is there: everything is left in textfiles
    told = ("monitoring.mode=push", f"monitoring.pushgateway={gateway}", f"monitoring.textfile={folder}/metrics")
    params = load_params(None, [*told, "monitoring.schedules={request-run: 86400}"])

    def mbd(*arguments: object) -> None:
        settings = [*told, *CERTIFIED, f"deletion.ledgers={folder}/ledgers", "evaluation.figures=false"]
        CliRunner().invoke(group, [*map(str, arguments), *(f"--set={setting}" for setting in settings)])

    mbd("delete", "--features", home / "data", "--model", home / "model", "--modality", "audio", "--out", home / "gone")
    mbd("delete", "--features", home / "data", "--model", home / "nothing", "--modality", "audio", "--out", home / "x")
    mbd("evaluate", "--features", home / "data", "--model", home / "gone", "--out", home / "evaluation")
    leakage = golden("surgery").predicate.evidence.leakage
    assert leakage
    with reporting("attack", params), step_run("attack", folder / "leakage", {}) as step:
        write_file(step.folder / "leakage.json", to_json(leakage.model_dump(mode="json")))
    with reporting("purge-scan", params):
        at = datetime.now(UTC)
        tell(lambda s: add_purge_scan(s, at, tombstones=2, searched=["cache"], resurrected=["cache"], blind=[]))
    with reporting("request-run", params):
        pass
    return [file.read_text() for file in sorted((folder / "metrics").glob("*.prom"))]
