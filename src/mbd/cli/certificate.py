"""`mbd certificate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import FOLDER, CommandGroup, with_params

if TYPE_CHECKING:
    from mbd.certificate.publish import Publisher
    from mbd.certificate.state import CertificateEntry
    from mbd.certificate.trust import Trust
    from mbd.params import Params
    from mbd.storage.store import Store

_STORE = click.option("--store", metavar="URL", help="file://FOLDER or s3://BUCKET[/PREFIX] [default: store.url].")
_CERTIFICATE = click.option(
    "--certificate", required=True, metavar="SHA256", help="The certificate: its SHA-256, or the start of it."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, show, revoke and replace published certificates, and tell of new audits."""


@command.command("list")
@_STORE
@_JSON
@with_params
def list_certificates(params: "Params", store: str | None, as_json: bool) -> None:
    """List the certificates in a store and where they stand."""
    from mbd.certificate.state import CertificateEntry, entries
    from mbd.files import to_json
    from mbd.records import now
    from mbd.report.text import table

    found = list(entries(_store(params, store), _trust(params), now()))
    if as_json:
        click.echo(to_json([_row(e) if isinstance(e, CertificateEntry) else vars(e) for e in found]), nl=False)
        return
    if not found:
        click.echo("there is no certificate in this store")
        return
    rows = [list(_row(e).values())[:-1] for e in found if isinstance(e, CertificateEntry)]
    header = ["certificate", "model", "deleted", "guarantee", "issued", "audit by", "state"]
    click.echo(table(header, [[row[0][:16], *row[1:]] for row in rows]))
    for e in found:
        if not isinstance(e, CertificateEntry):
            click.echo(f"  {e.digest[:16]}  cannot be verified: {e.reason}")


@command.command()
@click.argument("certificate")
@_STORE
@_JSON
@with_params
def show(params: "Params", certificate: str, store: str | None, as_json: bool) -> None:
    """Show a certificate: a bundle's folder, or the SHA-256 (or its start) of one in a store."""
    from mbd.certificate.bundle import Bundle
    from mbd.certificate.state import entry
    from mbd.formats.statement import to_payload
    from mbd.records import now
    from mbd.report.text import to_text
    from mbd.steps.report import bundle_page, store_page

    note = ""
    if Path(certificate).is_dir():
        bundle = Bundle(Path(certificate))
        page, statement = bundle_page(bundle), bundle.statement
        note = "Nothing was verified: use `mbd verify`."
    else:
        opened = _store(params, store)
        found = entry(opened, certificate, _trust(params), now())
        page, statement = store_page(opened, found), found.statement
    click.echo(to_payload(statement).decode() if as_json else f"{to_text(page)}{note}")


@command.command()
@_CERTIFICATE
@click.option("--reason", required=True, help="Why it should no longer be relied on; everybody can read it.")
@_STORE
@with_params
def revoke(params: "Params", certificate: str, reason: str, store: str | None) -> None:
    """Withdraw a certificate: a signed statement in the log. It stays in the store, and no longer verifies."""
    from mbd.certificate.compose import revocation
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    found = _entry(publisher, certificate)
    if found.status.state == "revoked":
        click.echo(f"it is revoked already: {found.status.reason}")
        return
    announce(revocation(found.digest, reason, now()), params.certificate, publisher)
    click.echo(f"certificate {found.digest} is revoked")


@command.command()
@_CERTIFICATE
@click.option("--by", required=True, metavar="SHA256", help="The certificate that takes its place.")
@click.option("--reason", required=True, help="Why; everybody can read it.")
@_STORE
@with_params
def supersede(params: "Params", certificate: str, by: str, reason: str, store: str | None) -> None:
    """Say that a certificate was replaced by another one, both in the same store."""
    from mbd.certificate.compose import supersession
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    old, new = _entry(publisher, certificate), _entry(publisher, by)
    announce(supersession(old.digest, new.digest, reason, now()), params.certificate, publisher)
    click.echo(f"certificate {old.digest} is replaced by {new.digest}")


@command.command()
@_CERTIFICATE
@click.option("--leakage", type=FOLDER, required=True, help="New attacks on its model, as `mbd attack` wrote them.")
@_STORE
@with_params
def reaudit(params: "Params", certificate: str, leakage: Path, store: str | None) -> None:
    """Tell of new attacks on a certified model: if passed, they set the next date, else they refute the certificate.

    The log has both; exit code 3 if it is refuted.
    """
    from mbd.steps import reaudit as step

    statement = step.run(params, certificate, leakage, store or params.store.url)
    digest = statement.subject[0].digest.sha256
    click.echo(f"audit of certificate {digest}: passed; attack again by {statement.predicate.reaudit_by:%Y-%m-%d}")


@command.command()
@click.option("--certificate", metavar="SHA256", help="The certificate: its SHA-256, or the start of it.")
@click.option("--modality", help="Instead: the latest certificate for this modality of certificate.model.")
@_STORE
@click.option("--out", type=FOLDER, required=True, help="Folder to write the model to.")
@with_params
def fetch(params: "Params", certificate: str | None, modality: str | None, store: str | None, out: Path) -> None:
    """Fetch the model that a published certificate is about, to attack it again."""
    from mbd.steps import fetch as step

    found = step.run(params, store or params.store.url, out, modality=modality or "", certificate=certificate or "")
    click.echo(f"certificate {found.certificate}: {found.model} without {', '.join(found.revoked)}")
    click.echo(f"\nwritten to {out}")


def _store(params: "Params", url: str | None) -> "Store":
    from mbd.storage import open_store

    return open_store(url or params.store.url, params.store)


def _trust(params: "Params") -> "Trust":
    from mbd.certificate.trust import read_trust

    return read_trust(Path(params.certificate.trust))


def _publisher(params: "Params", url: str | None) -> "Publisher":
    """Return what publishes, once what an earlier command had to leave is finished."""
    from mbd.certificate.keys import load_signer
    from mbd.certificate.publish import Publisher, finish_pending

    trust = _trust(params)
    signer = load_signer(params.certificate.log_signer, trust)
    publisher = Publisher(_store(params, url), params.store, signer, trust)
    finish_pending(publisher)
    return publisher


def _entry(publisher: "Publisher", certificate: str) -> "CertificateEntry":
    from mbd.certificate.state import entry
    from mbd.records import now

    return entry(publisher.store, certificate, publisher.trust, now())


def _row(entry: "CertificateEntry") -> dict[str, str]:
    predicate = entry.statement.predicate
    names = ", ".join(predicate.deleted.modalities)
    return {
        "certificate": entry.digest,
        "model": predicate.model,
        "deleted": names if predicate.deleted.scope == "modalities" else f"{names} of some subjects",
        "guarantee": predicate.guarantee.kind,
        "issued": f"{predicate.issued:%Y-%m-%d}",
        "reaudit_by": f"{entry.status.reaudit_by:%Y-%m-%d}",
        "state": entry.status.state,
        "reason": entry.status.reason,
    }
