"""`mbd request`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import FOLDER, CommandGroup, with_params
from mbd.errors import MbdError

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.requests.request_store import RequestStore


class UnfulfilledError(MbdError):
    """A request could not be carried out."""


_STORE = click.option("--store", "url", metavar="URL", help="Store of the requests [default: store.url].")


@click.group(cls=CommandGroup)
def command() -> None:
    """Enter requests to forget, look at them, carry them out."""


def _book(params: "Params", url: str | None) -> "RequestStore":
    from mbd.requests.request_store import RequestStore
    from mbd.storage import open_store

    return RequestStore(open_store(url or params.store.url, params.store))


@command.command()
@_STORE
@click.option("--model", metavar="NAME", help="Name under which the model is published [default: certificate.model].")
@click.option("--modality", "modalities", required=True, multiple=True, metavar="MODALITY", help="Repeatable.")
@click.option("--reason", default="", help="Why, in a few words that name nobody.")
@click.option("--requester", default="", help="A reference to who asked; never personal data.")
@click.option("--token", help="The same token again enters nothing new.")
@with_params
def submit(
    params: "Params",
    url: str | None,
    model: str | None,
    modalities: tuple[str, ...],
    reason: str,
    requester: str,
    token: str | None,
) -> None:
    """Enter a request; it is due after requests.due_days."""
    request = _book(params, url).submit(
        model or params.certificate.model,
        modalities,
        due_days=params.requests.due_days,
        reason=reason,
        requester=requester,
        token=token,
    )
    click.echo(f"{request.id}  {request.state}  due {request.due.date()}")


@command.command("list")
@_STORE
@click.option("--open", "only_open", is_flag=True, help="Only those that are still owed.")
@with_params
def list_command(params: "Params", url: str | None, only_open: bool) -> None:
    """List requests, nearest deadline first."""
    book = _book(params, url)
    for request in book.open_requests() if only_open else sorted(book.all(), key=lambda found: (found.due, found.id)):
        what = ", ".join(request.modalities)
        click.echo(f"{request.id}  {request.state:9}  due {request.due.date()}  {what} of {request.model}")


@command.command()
@click.argument("identifier", metavar="ID")
@_STORE
@with_params
def show(params: "Params", identifier: str, url: str | None) -> None:
    """Print a request with its history as JSON."""
    click.echo(_book(params, url).get(identifier).to_json(), nl=False)


@command.command()
@click.argument("identifier", metavar="ID")
@_STORE
@with_params
def cancel(params: "Params", identifier: str, url: str | None) -> None:
    """Cancel a request that nobody has begun to carry out."""
    request = _book(params, url).cancel(identifier)
    click.echo(f"{request.id}  {request.state}")


@command.command()
@_STORE
@click.option("--features", type=FOLDER, required=True, help="FeatureSet that the model was made from.")
@click.option("--model", type=FOLDER, required=True, help="Model that was trained (certificate.model is its name).")
@click.option("--worker", help="Name of this worker in the requests' history [default: host and process].")
@with_params
def run(params: "Params", url: str | None, features: Path, model: Path, worker: str | None) -> None:
    """Carry out what is owed for the model certificate.model, all of it by one deletion at a time."""
    import os
    import socket

    from mbd.steps.request import Worker

    where = url or params.store.url
    name = worker or f"{socket.gethostname()}-{os.getpid()}"
    outcomes = list(Worker(params, _book(params, url), where, features, model, name).run())
    for request, outcome in outcomes:
        click.echo(f"{request.id}  {request.state}  {outcome}")
    if not outcomes:
        click.echo("nothing is owed, or another worker is at work on this model")
    if any(request.state in ("failed", "refused") for request, _ in outcomes):
        raise UnfulfilledError(
            "not every request was carried out", hint="see above; `mbd request show ID` has the history"
        )
