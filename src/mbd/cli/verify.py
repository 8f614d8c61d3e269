"""`mbd verify`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_reader_params
from mbd.cli.options import JSON, TRUST, features, model, print_result, store

if TYPE_CHECKING:
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
def command(
    params: "ReaderParams",
    bundle: str,
    *,
    model: Path | None,
    trust: Path | None,
    store: str | None,
    offline: bool,
    as_json: bool,
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
    print_result(verdict, _in_words(verdict), as_json=as_json)
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
