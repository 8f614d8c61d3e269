"""For those who rely on the result: `mbd verify`, `guard` and `report`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import existing_store, print_result, report_written, wants_json, with_params, with_reader_params

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.tree import ReaderParams
    from mbd.report.page.html import Paper


_LOG = logging.getLogger(__name__)


@click.command()
@click.argument("bundle")
@options.model("Model folder to compare with the certificate.", required=False)
@options.TRUST
@options.store("none; a folder needs it, or --offline")
@options.flag("--offline", "Ask no store: whether the certificate is in force stays unknown.")
@options.flag("--reproduce", "Train without the modality and compare bits (exact deletions).")
@options.features(required=False, help="FeatureSet for --reproduce; the deleted modality is not needed.")
@with_reader_params
def verify_command(
    params: "ReaderParams", bundle: str, features: Path | None, *, reproduce: bool, **given: Any
) -> None:
    """Verify a certificate: a bundle's folder, or the URL of a store or of a certificate in it.

    The first line is the verdict: VERIFIED (exit code 0), REPLACED (41), WITHDRAWN (42), NOT VERIFIED (43) if something
    is missing, or FORGED OR DAMAGED (44). A folder needs --store to be verified; with --offline it is at most NOT
    VERIFIED, as the store alone knows whether the certificate is in force.
    """
    from mbd.steps import verify
    from mbd.verifier.verdict import write_verdict

    if reproduce != (features is not None):
        raise click.UsageError("--reproduce and --features DIR belong together")
    verdict = verify.run(params, bundle, features=features, **given)
    print_result(verdict, write_verdict(verdict, every_check=_LOG.isEnabledFor(logging.DEBUG)))
    sys.exit(verdict.rules.exit_code)


@click.command()
@options.model("Model folder that is about to be served.")
@options.STORE
@options.TRUST
@click.option("--as", "name", metavar="NAME", help="Name under which it is to be loaded [default: its only one].")
@click.option("--schema", type=options.FILE, help="File to write the JSON Schema of its inputs to [default: print it].")
@with_reader_params
def guard_command(
    params: "ReaderParams",
    model: Path,
    store: str | None,
    trust: Path | None,
    name: str | None,
    schema: Path | None,
) -> None:
    """Admit a model to serving or refuse it (exit code 4), and print the JSON Schema of its inputs.

    A model is admitted if a certificate of its weights verifies, is in the log, is not revoked, superseded, refuted or
    overdue, and the model takes no modality that was revoked for its name; or if it was registered (`mbd register`) and
    its training has seen nothing that was revoked for its name. What is held against weights under one of their names
    holds under all. The log must be complete, and its checkpoint not older than certificate.checkpoint_days.
    """
    from mbd.certificate.guard import admit, input_schema
    from mbd.files import to_json, write_file
    from mbd.steps.step import read_folder
    from mbd.trust.trust_file import read_trust, require_trust
    from mbd.verifier.verdict import fingerprint

    file = require_trust(trust)
    trusted, age = read_trust(file), params.certificate.checkpoint_age
    admission = admit(read_folder(model), existing_store(params, store), trusted, max_age=age, name=name)
    inputs = input_schema(admission.record)
    _LOG.info("admitted by %s %s", "certificate" if admission.certificate else "registration", admission.release.digest)
    _LOG.info("trust file %s, fingerprint %s", file.absolute(), fingerprint(trusted.digest))
    if schema is not None:
        write_file(schema, to_json(inputs))
        _LOG.info("written to %s", schema)
    if wants_json():
        by = {"certificate": admission.certificate, "registration": admission.registration}
        result = {**by, "model": admission.release.model, "inputs": inputs}
        trust_used = {"trust": trusted.digest, "trust_file": str(file.absolute())}
        print_result(result | trust_used)
    elif schema is None:
        print_result(inputs)


@click.command()
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@options.store("none; with a BUNDLE the store that is asked for its status, else the one whose pages are written")
@options.path("--out", "Folder; or a .html, .md, .json or .pdf file.", required=True)
@click.option(
    "--format", "form", type=click.Choice(["page", "card"]), default="page", help="card: for a model's README."
)
@options.flag("--pdf", "Write the page as PDF, too (needs Chromium or WeasyPrint).")
@click.option("--paper", type=click.Choice(["A4", "letter"]), default="A4", show_default=True, help="Paper of the PDF.")
@options.TRUST
@with_params
def report_command(
    params: "Params",
    bundle: Path | None,
    *,
    store: str | None,
    out: Path,
    form: str,
    pdf: bool,
    paper: "Paper",
    trust: Path | None,
) -> None:
    """Write the page of a certificate BUNDLE, or with --store alone those of a whole store: HTML, Markdown and JSON.

    The HTML page is self-contained, and checks digests, signatures and the log in the browser. With a BUNDLE and
    --store, the bundle is verified first, and the page begins with the verdict.
    """
    from mbd.production.store_pages import write_store_pages
    from mbd.steps import report, verify

    if bundle is None:
        if store is None or pdf or form == "card":
            raise click.UsageError("give a BUNDLE; --store URL without one writes pages of all certificates in it")
        done = write_store_pages(params, existing_store(params, store).url, out, trust=trust)
        invalid = [f"  {each.digest[:16]}  invalid: {each.reason}" for each in done.invalid]
        text = "\n".join([f"{len(done.certificates)} certificates; open {done.page}", *invalid])
        print_result(done, text)
        return
    verdict = verify.run(params, str(bundle), trust=trust, store=store) if store else None
    if form == "card":
        page = report.card_of_bundle(bundle, out, verdict)
    else:
        page = report.of_bundle(bundle, out, verdict, pdf=paper if pdf or out.suffix == ".pdf" else None)
    found = verdict.summary if verdict else "nothing was verified (--store URL)"
    print_result({"page": page, "decision": verdict and verdict.decision}, found)
    report_written(form, page)
