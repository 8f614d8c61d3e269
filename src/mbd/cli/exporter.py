"""`mbd exporter`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import ISSUER_TRUST, STORE, existing_store
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.monitoring.exporter import StoreMonitor
    from mbd.params import Params


@click.command()
@STORE
@click.option("--port", type=click.IntRange(0, 65535), default=9890, show_default=True, help="Port; 0 for a free one.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@ISSUER_TRUST
@click.option("--once", is_flag=True, help="Scan the store once, print the metrics, and exit.")
@with_params
def command(params: "Params", store: str | None, port: int, address: str, trust: Path | None, once: bool) -> None:
    """Serve the metrics of a store to Prometheus: /metrics, /healthz, /readyz."""
    from mbd.certificate.trust import read_trust
    from mbd.monitoring.exporter import StoreMonitor
    from mbd.monitoring.store_scanner import StoreScanner
    from mbd.storage import open_private

    file = trust or Path(params.certificate.trust)
    read_trust(file)  # a wrong file is an error at once, not a metric
    opened = existing_store(params, store)
    scanner = StoreScanner(opened, open_private(opened.url, params.store), file)
    monitor = StoreMonitor(scanner, params.monitoring.scan_seconds, params.registration.retrain_days)
    if once:
        monitor.scan()
        click.echo(monitor.text(), nl=False)
    else:
        _serve(monitor, address, port)


def _serve(monitor: "StoreMonitor", address: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    import signal
    import threading

    from mbd.monitoring.exporter import Exporter

    try:
        server = Exporter(address, port, monitor)
    except OSError as error:
        raise UsageError(
            f"cannot listen on this address: {error.strerror}", key="--port", value=f"{address}:{port}"
        ) from error
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    monitor.start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    click.echo(f"{server.url}/metrics")
    end.wait()
    server.shutdown()
    server.server_close()
    monitor.stop()
