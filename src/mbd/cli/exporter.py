"""`mbd exporter`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.monitoring.exporter import StoreMonitor
    from mbd.params import Params


@click.command()
@click.option("--store", "url", metavar="URL", help="Store to look at [default: store.url].")
@click.option("--port", type=click.IntRange(0, 65535), default=9890, show_default=True, help="0: any that is free.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--trust", type=click.Path(dir_okay=False, path_type=Path), help="Trusted keys [certificate.trust].")
@click.option("--once", is_flag=True, help="Look once, print the metrics, and end.")
@with_params
def command(params: "Params", url: str | None, port: int, address: str, trust: Path | None, once: bool) -> None:
    """Serve what the store says now to Prometheus: /metrics, /healthz, /readyz."""
    from mbd.certificate.trust import read_trust
    from mbd.monitoring.exporter import StoreMonitor
    from mbd.monitoring.store_scanner import StoreScanner
    from mbd.storage import open_store

    trust = trust or Path(params.certificate.trust)
    read_trust(trust)  # a wrong file is told at once, not by a metric
    store = open_store(url or params.store.url, params.store)
    monitor = StoreMonitor(StoreScanner(store, trust), params.monitoring.scan_seconds)
    if once:
        monitor.scan()
        click.echo(monitor.text(), nl=False)
    else:
        _serve(monitor, address, port, store.url)


def _serve(monitor: "StoreMonitor", address: str, port: int, store: str) -> None:
    """Serve until somebody ends it."""
    import signal
    import threading

    from mbd.monitoring.exporter import Exporter

    try:
        server = Exporter(address, port, monitor)
    except OSError as error:
        raise UsageError(
            f"nothing can be served here: {error.strerror}", key="--port", value=f"{address}:{port}"
        ) from error
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    monitor.start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    click.echo(f"{server.url}/metrics serves what {store} says")
    end.wait()
    server.shutdown()
    server.server_close()
    monitor.stop()
