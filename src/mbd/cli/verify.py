"""For those who rely on the result: `mbd verify`, `guard` and `report`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.options import (
    FILE,
    JSON,
    STORE,
    TRUST,
    existing_store,
    features,
    model,
    print_result,
    store,
    wants_json,
    with_params,
    with_reader_params,
)

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.reader import ReaderParams
    from mbd.verifier.verdict import Verdict


_MARKS = {"passed": "passed", "failed": "FAILED", "not checkable": "not checkable"}


@click.command()
@click.argument("bundle")
@model("Model folder to compare with the certificate.", required=False)
@TRUST
@store("none; a folder needs it, or --offline")
@click.option("--offline", is_flag=True, help="Ask no store: whether the certificate is in force stays unknown.")
@JSON
@click.option("--reproduce", is_flag=True, help="Train without the modality and compare bits (exact deletions).")
@features(required=False, help="FeatureSet for --reproduce; the deleted modality is not needed.")
@with_reader_params
def verify_command(
    params: "ReaderParams",
    bundle: str,
    *,
    model: Path | None,
    trust: Path | None,
    store: str | None,
    offline: bool,
    reproduce: bool,
    features: Path | None,
) -> None:
    """Verify a certificate: a bundle's folder, or the URL of a store or of a certificate in it.

    VERIFIED: every check passed or does not apply, and by the store's log the certificate is in force. For a folder,
    this needs --store; with --offline the result is AUTHENTIC, STANDING UNKNOWN. Exit code 0 for both; 4 if a check
    failed, or if signatures could not be checked because there is no trust file.
    """
    from mbd.errors import ExitCode
    from mbd.steps import verify

    if reproduce != (features is not None):
        raise click.UsageError("--reproduce and --features DIR belong together")
    verdict = verify.run(params, bundle, model=model, trust=trust, store=store, offline=offline, features=features)
    print_result(verdict, _in_words(verdict))
    if not verdict.authentic:
        sys.exit(ExitCode.UNVERIFIED)


def _in_words(verdict: "Verdict") -> str:
    width = max(len(check.name) for check in verdict.checks)
    lines = [f"  {_MARKS[check.outcome]:<13}  {check.name:<{width}}  {check.reason}" for check in verdict.checks]
    return "\n".join([*_headline(verdict), "", *lines])


def _headline(verdict: "Verdict") -> list[str]:
    if not verdict.authentic:
        reasons = [f"  {check.name}: {check.reason}" for check in verdict.problems]
        return [verdict.summary, *reasons, "  Do not rely on this certificate.", _trust(verdict)]
    from mbd.formats.guarantee import WARNING

    claims, guarantee = verdict.claims, verdict.claims["guarantee"]
    proven = "" if guarantee["epsilon"] is None else f", ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}"
    what = ", ".join(claims["modalities"]) + (" of some subjects" if claims["scope"] == "subjects" else "")
    asked = (
        f"in force by the log of {verdict.store}" if verdict.verified else "no store was asked whether it is in force"
    )
    return [
        verdict.summary,
        *(
            []
            if verdict.model
            else ["  Nothing is said about any weights that you have: compare them with --model DIR."]
        ),
        f"  {asked}",
        f"  {what} deleted from {claims['model']} by the method {claims['method']}: {guarantee['kind']}{proven}",
        *(f"  {assumption}" for assumption in guarantee["assumptions"] if assumption.startswith(WARNING)),
        f"  issued by {_issuer(claims['issuer'])}",
        f"  weights {claims['weights']}",
        f"  copies of the old weights erased: {claims['erasure']['claim']}",
        _trust(verdict),
    ]


def _issuer(issuer: dict[str, str | None]) -> str:
    name, contact = issuer["name"] or "an issuer that gives no name", issuer["contact"]
    return f"{name} ({contact})" if contact else name


def _trust(verdict: "Verdict") -> str:
    if not verdict.trust_file:
        return "  no trust file"
    return f"  trust file {verdict.trust_file}, fingerprint {verdict.fingerprint}"


_LOG = logging.getLogger(__name__)


@click.command()
@model("Model folder that is about to be served.")
@STORE
@TRUST
@click.option("--schema", type=FILE, help="File to write the JSON Schema of its inputs to [default: print it].")
@JSON
@with_reader_params
def guard_command(
    params: "ReaderParams", model: Path, store: str | None, trust: Path | None, schema: Path | None
) -> None:
    """Admit a model to serving or refuse it (exit code 4), and print the JSON Schema of its inputs.

    A model is admitted if a certificate of its weights verifies, is in the log, is not revoked, superseded, refuted or
    overdue, and the model takes no modality that was revoked for its name; or if it was registered (`mbd register`) and
    its training has seen nothing that was revoked for its name. The log must be complete, and its checkpoint not older
    than certificate.checkpoint_days.
    """
    from mbd.certificate.guard import admit, input_schema
    from mbd.files import to_json, write_file
    from mbd.steps.step import read_folder
    from mbd.trust.trust_file import read_trust, require_trust
    from mbd.verifier.verdict import fingerprint

    file = require_trust(trust)
    trusted, age = read_trust(file), params.certificate.checkpoint_age
    admission = admit(read_folder(model), existing_store(params, store), trusted, max_age=age)
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
@store("none; give a BUNDLE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; or one .html, .md or .json file.")
@TRUST
@JSON
@with_params
def report_command(params: "Params", bundle: Path | None, store: str | None, out: Path, trust: Path | None) -> None:
    """Write the page of a certificate BUNDLE, or with --store the pages of a whole store: HTML, Markdown and JSON.

    The HTML page is self-contained, and checks digests, signatures and the log in the browser.
    """
    from mbd.production.store_pages import write_store_pages
    from mbd.steps import report

    if (bundle is None) == (store is None):
        raise click.UsageError("give either a BUNDLE or --store URL")
    if bundle is not None:
        page = report.of_bundle(bundle, out)
        text = f"open {page} and verify it there: writing it has verified nothing"
        print_result({"page": page}, text)
        return
    done = write_store_pages(params, existing_store(params, store).url, out, trust=trust)
    invalid = [f"  {each.digest[:16]}  invalid: {each.reason}" for each in done.invalid]
    text = "\n".join([f"{len(done.certificates)} certificates; open {done.page}", *invalid])
    print_result(done, text)
