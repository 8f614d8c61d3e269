"""`mbd certificate`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import CommandGroup, with_params
from mbd.cli.options import CERTIFICATE, JSON, STORE, existing_store, print_result, trusted_keys

if TYPE_CHECKING:
    from mbd.certificate.publish import Publisher
    from mbd.certificate.state import CertificateEntry, InvalidCertificate
    from mbd.params import Params

_LOG = logging.getLogger(__name__)
_REASON = click.option("--reason", required=True, help="Why; it is published with the statement.")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, show, revoke and supersede published certificates, and add new audits.

    CERTIFICATE is its SHA-256, or any unique prefix of it with 6 or more digits.
    """


@command.command("list")
@STORE
@JSON
@with_params
def list_certificates(params: "Params", store: str | None, as_json: bool) -> None:
    """List the certificates in a store and their state."""
    from mbd.certificate.state import CertificateEntry, entries
    from mbd.records import now

    found = list(entries(existing_store(params, store), trusted_keys(params), now()))
    rows = [_row(e) if isinstance(e, CertificateEntry) else vars(e) for e in found]
    print_result(rows, _table(found), as_json=as_json)


def _table(found: "list[CertificateEntry | InvalidCertificate]") -> str:
    from mbd.certificate.state import CertificateEntry
    from mbd.report.text import table

    if not found:
        return "there is no certificate in this store"
    rows = [list(_row(e).values())[:-1] for e in found if isinstance(e, CertificateEntry)]
    header = ["certificate", "model", "deleted", "guarantee", "issued", "audit by", "state"]
    invalid = [f"  {e.digest[:16]}  invalid: {e.reason}" for e in found if not isinstance(e, CertificateEntry)]
    return "\n".join([table(header, [[row[0][:16], *row[1:]] for row in rows]), *invalid])


@command.command()
@CERTIFICATE
@STORE
@JSON
@with_params
def show(params: "Params", certificate: str, store: str | None, as_json: bool) -> None:
    """Show a certificate: one in a store, or the one in a bundle's folder."""
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
        opened = existing_store(params, store)
        found = entry(opened, certificate, trusted_keys(params), now())
        page, statement = store_page(opened, found), found.statement
    click.echo(to_payload(statement).decode() if as_json else f"{to_text(page)}{note}")


@command.command()
@CERTIFICATE
@_REASON
@STORE
@JSON
@with_params
def revoke(params: "Params", certificate: str, reason: str, store: str | None, as_json: bool) -> None:
    """Revoke a certificate by a signed statement in the log; it stays in the store and no longer verifies."""
    from mbd.certificate.compose import revocation
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    found = _entry(publisher, certificate)
    if found.status.state == "revoked":
        _LOG.info("it was revoked before: %s", found.status.reason)
    else:
        announce(revocation(found.digest, reason, now()), params.certificate, publisher)
    result = {"certificate": found.digest, "state": "revoked"}
    print_result(result, f"certificate {found.digest} is revoked", as_json=as_json)


@command.command()
@CERTIFICATE
@click.option("--by", required=True, metavar="CERTIFICATE", help="The certificate that replaces it.")
@_REASON
@STORE
@JSON
@with_params
def supersede(params: "Params", certificate: str, by: str, reason: str, store: str | None, as_json: bool) -> None:
    """Replace a certificate by another one of the same store."""
    from mbd.certificate.compose import supersession
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    old, new = _entry(publisher, certificate), _entry(publisher, by)
    announce(supersession(old.digest, new.digest, reason, now()), params.certificate, publisher)
    result = {"certificate": old.digest, "state": "superseded", "by": new.digest}
    print_result(result, f"certificate {old.digest} is superseded by {new.digest}", as_json=as_json)


@command.command()
@CERTIFICATE
@click.option("--leakage", type=options.FOLDER, required=True, help="New attacks on its model, from `mbd attack`.")
@STORE
@JSON
@with_params
def reaudit(params: "Params", certificate: str, leakage: Path, store: str | None, as_json: bool) -> None:
    """Add new attacks on a certified model: passed, they set the next date; else they refute the certificate.

    Both are logged; exit code 3 if the certificate is refuted.
    """
    from mbd.steps import reaudit as step

    statement = step.run(params, certificate, leakage, existing_store(params, store).url)
    digest, due = statement.subject[0].digest.sha256, statement.predicate.reaudit_by
    print_result(
        {"certificate": digest, "passed": True, "reaudit_by": due},
        f"audit of certificate {digest}: passed; attack again by {due:%Y-%m-%d}",
        as_json=as_json,
    )


@command.command()
@click.argument("certificate", required=False)
@click.option("--modality", help="Instead: the latest certificate for this modality of certificate.model.")
@STORE
@options.out("the model")
@JSON
@with_params
def fetch(
    params: "Params", certificate: str | None, modality: str | None, store: str | None, out: Path, as_json: bool
) -> None:
    """Fetch the model of a published certificate, to attack it again."""
    from mbd.steps import fetch as step

    url = existing_store(params, store).url
    found = step.run(params, url, out, modality=modality or "", certificate=certificate or "")
    text = f"certificate {found.certificate}: {found.model} without {', '.join(found.revoked)}"
    print_result(found, text, as_json=as_json)
    _LOG.info("written to %s", out)


def _publisher(params: "Params", url: str | None) -> "Publisher":
    """Return the publisher of a store; what an interrupted command left to publish is published first."""
    from mbd.certificate.keys import load_signer
    from mbd.certificate.publish import Publisher, finish_pending

    store, trust = existing_store(params, url), trusted_keys(params)
    publisher = Publisher(store, params.store, load_signer(params.certificate.log_signer, trust), trust)
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
