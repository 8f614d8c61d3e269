"""`mbd request`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, existing_store, print_result, report_written, suggest, with_params
from mbd.errors import MbdError

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.production.request_store import RequestStore
    from mbd.production.worker import Worker


class UnfulfilledError(MbdError):
    """A request could not be fulfilled."""


@click.group(cls=CommandGroup)
def command() -> None:
    """Submit, list, cancel and fulfil requests to delete a modality."""


def _requests(params: "Params", store: str | None) -> "RequestStore":
    """Return the existing requests of the store at a URL (default: `store.url`)."""
    from mbd.production.request_store import RequestStore

    if params.store.private is None:
        existing_store(params, store)
    return RequestStore.open(params, store or params.store.url)


@command.command()
@options.STORE
@click.option("--model", metavar="NAME", help="Name under which the model is published [default: certificate.model].")
@options.MODALITIES
@options.several(
    "--subject",
    "subjects",
    "ID",
    "Person (group of the FeatureSet) whose recordings are to be deleted [default: those of all]; repeatable. The id "
    "is stored encrypted, and is in no log and no certificate.",
)
@options.features(
    "features_folder",
    required=False,
    help="FeatureSet to look persons up in [default: that of the current release].",
)
@options.flag("--nothing-held", "A person may be unknown: the answer is a signed statement of that.")
@options.reason("Why, in a few words; no names of persons.", required=False, default="")
@click.option("--requester", default="", help="A case number; no personal data.")
@click.option("--token", help="Idempotency token: the same one again submits nothing new.")
@with_params
def submit(params: "Params", store: str | None, model: str | None, **given: Any) -> None:
    """Submit a request; it is due after requests.due_days. Each person's is one of its own."""
    from mbd.production import submit as step

    requests = step.submit(params, store or params.store.url, model or params.certificate.model, **given)
    text = "\n".join(f"{request.id}  {request.state}  due {request.due.date()}" for request in requests)
    print_result(requests if given["subjects"] else requests[0], text)
    suggest("request", "run")


@command.command("list")
@options.STORE
@click.option("--open", "only_open", is_flag=True, help="Only open requests.")
@with_params
def list_command(params: "Params", store: str | None, only_open: bool) -> None:
    """List requests, nearest deadline first; those written without their key are not authentic.

    A request is open again if the certificate that answered it was withdrawn (as the log of certificate.trust says).
    """
    from mbd.formats.request import OPEN
    from mbd.monitoring.store_scanner import facts_of_request, proven
    from mbd.steps.revoked import read_log

    requests, plain, lines = _requests(params, store), [], []
    stated = sorted(requests.stated(), key=lambda r: (r.due, r.id))
    logged = Path(params.certificate.trust).is_file() and any(r.certificate for r in stated)
    history = read_log(params, store or params.store.url) if logged else None
    for r in stated:
        state = proven(facts_of_request(r), history).state if history else r.state
        authentic, of = requests.is_authentic(r), " of a person" * bool(r.subject)
        if only_open and authentic and state not in OPEN:
            continue
        plain.append(r.to_plain() | {"authentic": authentic, "state": state})
        word = state if authentic else "not authentic"
        lines.append(f"{r.id}  {word:9}  due {r.due.date()}  {', '.join(r.modalities)}{of} of {r.model}")
    print_result(plain, "\n".join(lines) or "no requests")


@command.command()
@click.argument("identifier", metavar="ID")
@options.STORE
@with_params
def show(params: "Params", identifier: str, store: str | None) -> None:
    """Print a request and its history, as JSON in any case."""
    requests = _requests(params, store)
    request = requests.get(identifier)
    print_result(request.to_plain() | {"authentic": requests.is_authentic(request)})


@command.command()
@click.argument("identifier", metavar="ID")
@options.STORE
@with_params
def cancel(params: "Params", identifier: str, store: str | None) -> None:
    """Cancel a request that no worker has started."""
    request = _requests(params, store).cancel(identifier)
    print_result(request, f"{request.id}  {request.state}")


@command.command()
@options.STORE
@options.features(required=False, help="FeatureSet that the model was made from [default: by its registered revision].")
@options.model("Trained model, where none of the name certificate.model is registered or published.", required=False)
@click.option("--worker", help="Name of this worker in the requests' history [default: host and process].")
@options.flag("--watch", "Do not end: fulfil requests as they come, until SIGTERM or SIGINT.")
@options.FIRST_TIME
@with_params
def run(
    params: "Params", store: str | None, features: Path | None, model: Path | None, worker: str | None, watch: bool
) -> None:
    """Fulfil the open requests for the model certificate.model, all of one kind by one deletion.

    It starts from the current release of the name, with the reference that was registered, and ends with a new one.
    --features and --model must agree with what was registered.
    """
    import os
    import socket

    from mbd.production.worker import Worker
    from mbd.steps.step import read_folder

    requests, url = _requests(params, store), store or params.store.url
    name = worker or f"{socket.gethostname()}-{os.getpid()}"
    carrying_out = Worker(params, requests, url, features and read_folder(features), model and read_folder(model), name)
    if watch:
        _watch(carrying_out)
        return
    outcomes = list(carrying_out.run())
    result = [{"request": request, "outcome": outcome} for request, outcome in outcomes]
    lines = [f"{request.id}  {request.state}  {outcome}" for request, outcome in outcomes]
    print_result(result, "\n".join(lines) or "no open requests, or another worker holds the lease")
    for certificate in dict.fromkeys(request.certificate for request, _ in outcomes if request.certificate):
        report_written("new model and its certificate", f"{url}/certificates/{certificate}")
        suggest("certificate", "fetch", certificate, "--store", url, "--out", "MODEL")
    if any(request.state in ("failed", "refused") for request, _ in outcomes):
        raise UnfulfilledError(
            "not every request was fulfilled", hint="see above; `mbd request show ID` prints the history"
        )


def _watch(worker: "Worker") -> None:
    """Fulfil requests until SIGTERM; work in progress is given up then, and its lease released."""
    import signal
    import sys
    import time

    from mbd import logs

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return True

    logs.serve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for request, outcome in worker.watch(wait):
        print_result({"request": request, "outcome": outcome}, f"{request.id}  {request.state}  {outcome}")
