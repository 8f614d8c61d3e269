"""`mbd certificate`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd import logs
from mbd.cli import options
from mbd.cli.options import (
    CommandGroup,
    existing_store,
    print_result,
    read_log,
    report_written,
    suggest,
    trusted_keys,
    wants_json,
    with_params,
)

if TYPE_CHECKING:
    from mbd.certificate.publish import Publisher
    from mbd.history.entries import CertificateEntry, InvalidCertificate
    from mbd.history.facts import CertificateFacts
    from mbd.history.state import Status
    from mbd.params import Params

_LOG = logging.getLogger(__name__)
_REASON = options.reason("Why; it is published with the statement.")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, show, revoke and supersede published certificates, and add new audits.

    CERTIFICATE is its SHA-256, or any unique prefix of it with 6 or more digits.
    """


@command.command("list")
@options.STORE
@options.TRUST
@with_params
def list_certificates(params: "Params", **log: Any) -> None:
    """List the certificates in a store with the verdict on each, by the log, and its state."""
    from mbd.history.entries import invalid_entries
    from mbd.history.state import status_in
    from mbd.records import now

    history = read_log(params, **log)
    at, age = now(), params.certificate.checkpoint_age
    rows = [_row(facts, status_in(history, facts, at, max_age=age)) for facts in history.certificates.values()]
    invalid = list(invalid_entries(history))
    print_result([*rows, *map(vars, invalid)], _table(rows, invalid, history.problem(at, age)))


def _table(rows: list[dict[str, str]], invalid: "list[InvalidCertificate]", problem: str | None) -> str:
    from mbd.report.text import table

    if not rows and not invalid:
        return "there is no certificate in this store"
    header = ["certificate", "model", "deleted", "guarantee", "issued", "audit by", "verdict", "state"]
    shown = ({**row, "certificate": row["certificate"][:16], "verdict": row["verdict"].upper()} for row in rows)
    cells = [list(row.values())[:-1] for row in shown]
    warning = [f"The state of certificates is unknown: {problem}."] if problem else []
    return "\n".join([table(header, cells), *(f"  {e.digest[:16]}  invalid: {e.reason}" for e in invalid), *warning])


@command.command()
@options.CERTIFICATE
@options.STORE
@options.TRUST
@with_params
def show(params: "Params", certificate: str, store: str | None, trust: Path | None) -> None:
    """Show a certificate: one in a store, or the one in a bundle's folder."""
    from mbd.formats.statement import to_payload
    from mbd.history.entries import read_entry
    from mbd.log.reader import Log
    from mbd.records import now
    from mbd.report.text import to_text
    from mbd.steps.report import bundle_page, store_page
    from mbd.verifier.bundle import Bundle

    note = ""
    if Path(certificate).is_dir():
        bundle = Bundle(Path(certificate))
        page, statement = bundle_page(bundle), bundle.statement
        note = "Nothing was verified: use `mbd verify`."
    else:
        opened, trusted, at = existing_store(params, store), trusted_keys(trust), now()
        entry = read_entry(opened, certificate, trusted, at, max_age=params.certificate.checkpoint_age)
        page, statement = store_page(Log(opened, trusted), opened.url, entry, at), entry.statement
    click.echo(logs.visible(to_payload(statement).decode() if wants_json() else f"{to_text(page)}{note}"))


@command.command()
@options.CERTIFICATE
@_REASON
@options.STORE
@options.FIRST_TIME
@with_params
def revoke(params: "Params", certificate: str, reason: str, store: str | None) -> None:
    """Revoke a certificate by a signed statement in the log: it is withdrawn, and what it deleted stays revoked."""
    from mbd.certificate.compose import compose_revocation
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    entry = _entry(publisher, certificate)
    if entry.status.state == "revoked":
        _LOG.info("it was revoked before: %s", entry.status.reason)
    else:
        announce(compose_revocation(entry.digest, reason, now()), params.certificate, publisher)
    result = {"certificate": entry.digest, "state": "revoked"}
    print_result(result, f"certificate {entry.digest} is revoked")


@command.command()
@options.CERTIFICATE
@click.option("--by", required=True, metavar="CERTIFICATE", help="The certificate that replaces it.")
@_REASON
@options.STORE
@options.FIRST_TIME
@with_params
def supersede(params: "Params", certificate: str, by: str, reason: str, store: str | None) -> None:
    """Replace a certificate by another one of the same store."""
    from mbd.certificate.compose import compose_supersession
    from mbd.certificate.publish import announce
    from mbd.records import now

    publisher = _publisher(params, store)
    old, new = _entry(publisher, certificate), _entry(publisher, by)
    announce(compose_supersession(old.digest, new.digest, reason, now()), params.certificate, publisher)
    result = {"certificate": old.digest, "state": "superseded", "by": new.digest}
    print_result(result, f"certificate {old.digest} is superseded by {new.digest}")


@command.command()
@options.CERTIFICATE
@options.folder("--leakage", "New attacks on its model, from `mbd attack`.", required=True)
@options.STORE
@options.FIRST_TIME
@with_params
def reaudit(params: "Params", certificate: str, leakage: Path, store: str | None) -> None:
    """Add new attacks on a certified model: passed, they set the next date; else they refute the certificate.

    Both are logged; exit code 3 if the certificate is refuted.
    """
    from mbd.steps.certificates import log_audit

    statement = log_audit(params, certificate, leakage, existing_store(params, store).url)
    digest, due = statement.subject[0].digest.sha256, statement.predicate.reaudit_by
    print_result(
        {"certificate": digest, "passed": True, "reaudit_by": due},
        f"audit of certificate {digest}: passed; attack again by {due:%Y-%m-%d}",
    )


@command.command()
@click.argument("certificate", required=False)
@click.option("--modality", help="Instead: the latest certificate for this modality of certificate.model.")
@options.STORE
@options.out("the model")
@with_params
def fetch(params: "Params", store: str | None, out: Path, **given: Any) -> None:
    """Fetch the model of a published certificate, to attack it again."""
    from mbd.steps.certificates import fetch_certified

    url = existing_store(params, store).url
    certified = fetch_certified(params, url, out, **given)
    text = f"certificate {certified.certificate}: {certified.model} without {', '.join(certified.revoked)}"
    print_result(certified, text)
    report_written("model", out)
    suggest("guard", "--model", out, "--store", url, "--trust", "TRUST-FILE")


@command.command("restore-ledger")
@options.model("The first model of the lineage, or one that was deleted from it.")
@options.STORE
@with_params
def restore_ledger(params: "Params", model: Path, store: str | None) -> None:
    """Enter what published certificates state into the budget ledger of their lineage, after it was lost."""
    from mbd.steps import certificates

    done = certificates.restore_ledger(params, model, existing_store(params, store).url)
    print_result(done, f"{done.ledger}: {done.added} charges added; ρ = {done.rho:.4g} is spent")


def _publisher(params: "Params", url: str | None) -> "Publisher":
    """Return the publisher of a store; what an interrupted command left to publish is published first."""
    from mbd.steps.publish import open_publisher

    publisher = open_publisher(params, existing_store(params, url).url)
    publisher.complete()
    return publisher


def _entry(publisher: "Publisher", certificate: str) -> "CertificateEntry":
    from mbd.history.entries import read_entry
    from mbd.records import now

    return read_entry(publisher.store, certificate, publisher.trust, now())


def _row(certificate: "CertificateFacts", status: "Status") -> dict[str, str]:
    from mbd.formats.predicate import deleted_words

    return {
        "certificate": certificate.digest,
        "model": certificate.model,
        "deleted": deleted_words(certificate.modalities, len(certificate.subjects)),
        "guarantee": certificate.kind,
        "issued": f"{certificate.issued:%Y-%m-%d}",
        "reaudit_by": f"{status.reaudit_by:%Y-%m-%d}",
        "verdict": status.decision,
        "state": status.state,
        "reason": status.reason,
    }
