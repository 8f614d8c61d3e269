"""What runs for long: `mbd serve` and `mbd exporter`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, existing_store, given, print_result, repeated, with_params, with_params_only

if TYPE_CHECKING:
    from mbd.formats.access import AccessToken, Role
    from mbd.params import Params
    from mbd.serving.server import WorkerProcess
    from mbd.serving.tokens import TokenFile


_ADDRESS = click.option(
    "--address", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all."
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@options.STORE
@options.number("--port", "Port; 0 for a free one.", 0, 65535, default=8890)
@_ADDRESS
@click.option("--tls-cert", type=options.FILE, help="PEM file of the TLS certificate; without it, plain HTTP.")
@click.option("--tls-key", type=options.FILE, help="PEM file of its private key.")
@options.ISSUER_TRUST
@options.flag("--worker", "Also carry out requests, as `mbd request run --watch` does.")
@options.folder("--features", "FeatureSet folder, for --worker; with it, requests of persons are taken.")
@options.folder("--model", "Trained model, for the first deletion of certificate.model; its modalities are known.")
@with_params_only
def command(
    params: "Params",
    store: str | None,
    port: int,
    address: str,
    *,
    tls_cert: Path | None,
    tls_key: Path | None,
    trust: Path | None,
    worker: bool,
    features: Path | None,
    model: Path | None,
) -> None:
    """Serve requests, certificates, the store, a console and metrics over HTTP.

    It prints its address and runs until SIGTERM or SIGINT. `mbd serve token` makes the tokens that clients need.
    """
    if worker and features is None:
        raise click.UsageError("--worker needs --features DIR")
    from mbd.serving.app import create_app
    from mbd.serving.server import Listening, serve
    from mbd.serving.service import Service
    from mbd.steps.step import read_folder
    from mbd.trust.commitments import read_lineage_key
    from mbd.trust.trust_file import read_trust

    listening = Listening(address, port, tls_cert, tls_key)
    file = trust or Path(params.certificate.trust)
    read_trust(file)  # a wrong file is an error at once
    service = Service.open(params, existing_store(params, store), file, model and read_folder(model))
    if features is not None:
        service.persons = read_lineage_key(params.certificate)
    if worker:
        service.worker = _worker(store)
    serve(create_app(service), listening, click.echo)


def _worker(store: str | None) -> "WorkerProcess":
    """Return the worker with the store, data, model and parameters of this command, as they were given."""
    from mbd.serving.server import WorkerProcess

    folders = [(f"--{name}", str(given(name))) for name in ("features", "model") if given(name)]
    file = given("params_file")
    return WorkerProcess(
        [
            *("request", "run", "--watch"),
            *(part for option in folders for part in option),
            *(("--store", store) if store else ()),
            *(("--params", str(file)) if file else ()),
            *repeated("--set", given("settings")),
        ]
    )


@command.group(cls=CommandGroup)
def token() -> None:
    """Make, list, rotate and revoke the tokens of clients."""


@token.command()
@options.several(
    "--role",
    "roles",
    None,
    "What its holder may do; repeatable.",
    type=click.Choice(["submit", "operate", "read"]),
    required=True,
)
@click.option("--name", required=True, help="Who holds it: an application or a team, no person.")
@options.number("--days", "Days of validity [default: until it is revoked].")
@with_params
def new(params: "Params", roles: tuple["Role", ...], name: str, days: int | None) -> None:
    """Make a token, and print it: it is not shown again."""
    _print_new(*_tokens(params).new(name, roles, days))


@token.command("list")
@with_params
def list_command(params: "Params") -> None:
    """List the tokens, without their secrets."""
    tokens = _tokens(params).tokens
    public = [token.model_dump(mode="json", exclude={"sha256"}) for token in tokens]
    print_result(public, "\n".join(map(_line, tokens)) or "no tokens")


@token.command()
@click.argument("chosen", metavar="TOKEN")
@options.number("--overlap-hours", "Hours for which the old token stays valid.", 0, default=24)
@with_params
def rotate(params: "Params", chosen: str, overlap_hours: int) -> None:
    """Replace TOKEN (an id or a name) by a new one, and print it."""
    from datetime import timedelta

    _print_new(*_tokens(params).rotate(chosen, timedelta(hours=overlap_hours)))


@token.command()
@click.argument("chosen", metavar="TOKEN")
@with_params
def revoke(params: "Params", chosen: str) -> None:
    """Revoke TOKEN (an id or a name): it is refused from now on."""
    gone = _tokens(params).revoke(chosen)
    print_result({"revoked": gone.id}, f"revoked {_line(gone)}")


def _tokens(params: "Params") -> "TokenFile":
    from mbd.serving.tokens import TokenFile

    return TokenFile(Path(params.serving.tokens))


def _print_new(secret: str, entry: "AccessToken") -> None:
    result = {"token": secret, **entry.model_dump(mode="json", exclude={"sha256"})}
    print_result(result, secret)


def _line(entry: "AccessToken") -> str:
    until = f"until {entry.expires:%Y-%m-%d %H:%MZ}" if entry.expires else "until it is revoked"
    return f"{entry.id}  {entry.name:20} {', '.join(entry.roles):22} {until}"


@click.command()
@options.STORE
@options.number("--port", "Port; 0 for a free one.", 0, 65535, default=9890)
@_ADDRESS
@options.ISSUER_TRUST
@options.flag("--once", "Scan the store once, print the metrics, and exit.")
@with_params_only
def exporter_command(
    params: "Params", store: str | None, port: int, address: str, trust: Path | None, once: bool
) -> None:
    """Serve the metrics of a store to Prometheus: /metrics, /healthz, /readyz."""
    from mbd.monitoring.store_monitor import StoreMonitor
    from mbd.monitoring.store_scanner import StoreScanner
    from mbd.production.request_store import RequestStore
    from mbd.trust.trust_file import read_trust

    file = trust or Path(params.certificate.trust)
    read_trust(file)  # a wrong file is an error at once, not a metric
    opened = existing_store(params, store)
    requests = RequestStore.open(params, opened.url)
    scanner = StoreScanner(opened, requests.store, file, params.certificate.checkpoint_age, requests.key)
    platform = params.platform if params.monitoring.kubeflow else None
    monitor = StoreMonitor(scanner, params.monitoring.scan_seconds, params.registration.retrain_days, platform)
    if once:
        monitor.scan()
        click.echo(monitor.text(), nl=False)
        return
    from mbd.serving.app import exporter_app
    from mbd.serving.server import Listening, serve
    from mbd.serving.service import Service

    service = Service(params, opened, requests, monitor, file)
    serve(exporter_app(service), Listening(address, port), lambda url: click.echo(f"{url}/metrics"))
