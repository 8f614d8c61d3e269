"""`mbd verify`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import JSON, TRUST, features, model, print_result

if TYPE_CHECKING:
    from mbd.certificate.verify import Verdict
    from mbd.params import Params

_MARKS = {"passed": "passed", "failed": "FAILED", "not checkable": "not checkable"}


@click.command()
@click.argument("bundle")
@model("Model folder to compare with the certificate.", required=False)
@TRUST
@JSON
@click.option("--reproduce", is_flag=True, help="Train without the modality and compare bits (exact deletions).")
@features(required=False, help="FeatureSet for --reproduce; the deleted modality is not needed.")
@with_params
def command(
    params: "Params",
    bundle: str,
    model: Path | None,
    trust: Path | None,
    as_json: bool,
    reproduce: bool,
    features: Path | None,
) -> None:
    """Verify a certificate: a bundle's folder, or the URL of a store or of a certificate in it.

    Exit code 0 only if every check passed or does not apply; 4 if one failed, or if signatures could not be checked
    because there is no trust file.
    """
    from mbd.errors import ExitCode
    from mbd.steps import verify

    if reproduce != (features is not None):
        raise click.UsageError("--reproduce and --features DIR belong together")
    verdict = verify.run(params, bundle, model=model, trust=trust, features=features)
    print_result(verdict, _in_words(verdict), as_json=as_json)
    if not verdict.verified:
        sys.exit(ExitCode.UNVERIFIED)


def _in_words(verdict: "Verdict") -> str:
    width = max(len(check.name) for check in verdict.checks)
    lines = [f"  {_MARKS[check.outcome]:<13}  {check.name:<{width}}  {check.reason}" for check in verdict.checks]
    return "\n".join([*_headline(verdict), "", *lines])


def _headline(verdict: "Verdict") -> list[str]:
    from mbd.formats.statement import WEIGHTS

    head = f"{verdict.decision.upper()}: certificate {verdict.certificate or 'unreadable'}"
    if not verdict.verified:
        reasons = [f"  {check.name}: {check.reason}" for check in verdict.problems]
        return [head, *reasons, "  Do not rely on this certificate."]
    claims, guarantee = verdict.claims, verdict.claims["guarantee"]
    proven = "" if guarantee["epsilon"] is None else f", ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}"
    what = ", ".join(claims["modalities"]) + (" of some subjects" if claims["scope"] == "subjects" else "")
    held = any(check.name == f"digest of {WEIGHTS}" and check.outcome == "passed" for check in verdict.checks)
    return [
        head,
        *([] if held else ["  Only the certificate was verified: no model was compared with it (--model)."]),
        f"  {what} deleted from {claims['model']} by the method {claims['method']}: {guarantee['kind']}{proven}",
        f"  weights {claims['weights']}",
        f"  copies of the old weights erased: {claims['erasure']['claim']}",
        f"  trust file {verdict.trust}",
    ]
