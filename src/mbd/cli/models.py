"""`mbd models`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, existing_store, print_result, read_log, report_written, suggest, with_params

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.production.models import ModelSummary

_NAME = click.argument("name")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, show, fetch and push registered models, and reinstate a modality.

    NAME is the name under which a model was registered, or its certificates were published.
    """


@command.command("list")
@options.STORE
@options.TRUST
@with_params
def list_models(params: "Params", **log: Any) -> None:
    """List the models of a store: what is current, what is revoked, which references are ready."""
    from mbd.production.models import age_days, summaries
    from mbd.report.text import table

    models = summaries(read_log(params, **log))
    rows = [
        [
            summary.model,
            summary.current.kind if summary.current else "none",
            summary.current.release[:16] if summary.current else "",
            f"{age_days(summary.current)} days" if summary.current else "",
            ", ".join(summary.current.inputs) if summary.current else "",
            ", ".join(summary.revoked) or "nothing",
            ", ".join(m for m, weights in summary.references.items() if weights) or "none",
        ]
        for summary in models
    ]
    header = ["model", "current", "release", "age", "takes", "revoked", "references without"]
    print_result(models, table(header, rows) if rows else "there is no model in this store")


@command.command()
@_NAME
@options.STORE
@options.TRUST
@with_params
def show(params: "Params", name: str, **log: Any) -> None:
    """Show what the log says of a model: every release, what is revoked, which references are ready."""
    from mbd.production.models import summary

    shown = summary(read_log(params, **log), name)
    print_result(shown, _text(shown))


@command.command()
@_NAME
@click.option("--reference", metavar="MODALITY", help="Instead: its reference that never saw this modality.")
@options.STORE
@options.TRUST
@options.out("the model")
@with_params
def fetch(params: "Params", name: str, reference: str | None, out: Path, **log: Any) -> None:
    """Fetch the current release of a model; every file is checked by its digest."""
    from mbd.production import models as step

    history = read_log(params, **log)
    release = step.fetch(params, history, name, out, without=(reference,) if reference else ())
    print_result(release, f"{name}: {release.kind} {release.release}, takes {', '.join(release.inputs)}")
    report_written("model", out)
    suggest("guard", "--model", out, "--store", history.store.url, "--trust", "TRUST-FILE")


@command.command()
@_NAME
@options.STORE
@options.TRUST
@with_params
def push(params: "Params", name: str, **log: Any) -> None:
    """Write the current release of a model to the MLflow registry, as a new version of mlflow.model.

    The version has tags with the certificate, its kind and the entry in the log, and mlflow.alias is moved to it. A
    release that is there already makes no second version. `mbd purge` removes the old ones.
    """
    from mbd.production import models as step

    done = step.push(params, read_log(params, **log), name)
    print_result(done, f"{name}: release {done.release} is {done.version}, named {done.alias}")


@command.command()
@_NAME
@options.several("--modality", "modalities", "MODALITY", "Modality that may be taken again; repeatable.", required=True)
@click.option("--person", metavar="CERTIFICATE", help="Only what this certificate of a person's deletion revoked.")
@options.reason("Why, such as consent given again; it is published.")
@options.STORE
@options.FIRST_TIME
@with_params
def reinstate(params: "Params", name: str, store: str | None, **given: Any) -> None:
    """Let releases of a model take a revoked modality again: a signed, logged statement.

    It lists the certificates that it overrules. What they say of their own models stays true. What persons have revoked
    for themselves stays revoked, unless --person names the certificate of it.
    """
    from mbd.production import models as step

    done = step.reinstate(params, name, store=existing_store(params, store).url, **given)
    text = f"{', '.join(done.modalities)} of {name} may be taken again; {len(done.overruled)} certificates overruled"
    print_result(done, text)


def _text(found: "ModelSummary") -> str:
    from mbd.report.text import table

    ready = [
        f"without {m}: {weights[:16]}" if weights else f"without {m}: missing"
        for m, weights in found.references.items()
    ]
    lines = [
        f"{found.model}: {f'current is {found.current.release}' if found.current else 'no release is current'}",
        *([f"it may not be used: {found.problem}"] if found.problem else []),
        f"revoked: {', '.join(found.revoked) or 'nothing'}; deletions of persons: {found.persons}",
        f"references: {', '.join(ready) or 'none'}",
    ]
    rows = [
        [each.index, each.kind, each.release[:16], f"{each.issued:%Y-%m-%d}", ", ".join(each.inputs), each.state]
        for each in found.releases
    ]
    return "\n".join([*lines, "", table(["entry", "release", "statement", "issued", "takes", "state"], rows)])
