"""`mbd exporter`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import ISSUER_TRUST, STORE, existing_store
from mbd.cli.serve import ADDRESS

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@STORE
@click.option("--port", type=click.IntRange(0, 65535), default=9890, show_default=True, help="Port; 0 for a free one.")
@ADDRESS
@ISSUER_TRUST
@click.option("--once", is_flag=True, help="Scan the store once, print the metrics, and exit.")
@with_params
def command(params: "Params", store: str | None, port: int, address: str, trust: Path | None, once: bool) -> None:
    """Serve the metrics of a store to Prometheus: /metrics, /healthz, /readyz."""
    from mbd.monitoring.store_monitor import StoreMonitor
    from mbd.monitoring.store_scanner import StoreScanner
    from mbd.production.request_store import RequestStore
    from mbd.storage import open_private
    from mbd.trust.trust_file import read_trust

    file = trust or Path(params.certificate.trust)
    read_trust(file)  # a wrong file is an error at once, not a metric
    opened = existing_store(params, store)
    private = open_private(opened.url, params.store)
    scanner = StoreScanner(opened, private, file, params.certificate.checkpoint_age)
    monitor = StoreMonitor(scanner, params.monitoring.scan_seconds, params.registration.retrain_days)
    if once:
        monitor.scan()
        click.echo(monitor.text(), nl=False)
        return
    from mbd.serving.app import exporter_app
    from mbd.serving.server import Listening, serve
    from mbd.serving.service import Service

    service = Service(params, opened, RequestStore(private), monitor, file)
    serve(exporter_app(service), Listening(address, port), lambda url: click.echo(f"{url}/metrics"))
