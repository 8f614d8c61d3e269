"""`mbd verify`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.certificate.verify import Verdict
    from mbd.params import Params

_MARKS = {"passed": "passed", "failed": "FAILED", "not checkable": "not checkable"}


@click.command()
@click.argument("bundle")
@click.option("--model", type=FOLDER, help="Model folder to hold against the certificate.")
@click.option(
    "--trust",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the keys that you trust, got by a way of your own [default: certificate.trust].",
)
@click.option("--json", "as_json", is_flag=True, help="Print all that was found as JSON.")
@click.option("--reproduce", is_flag=True, help="Train without the modality and compare bits (exact deletions).")
@click.option("--features", type=FOLDER, help="Data to reproduce from; the deleted modality is not needed.")
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

    Exit code 0 only if every check passed or does not apply here; 4 if one failed, or if nobody's signature could be
    checked because there is no trust file.
    """
    from mbd.errors import ExitCode
    from mbd.steps import verify

    if reproduce != (features is not None):
        raise click.UsageError("--reproduce and --features DIR belong together")
    verdict = verify.run(params, bundle, model=model, trust=trust, features=features)
    click.echo(verdict.to_json() if as_json else _in_words(verdict), nl=not as_json)
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
        whys = [f"  {check.name}: {check.reason}" for check in verdict.problems]
        return [head, *whys, "  Nothing that this certificate says can be relied on."]
    claims, guarantee = verdict.claims, verdict.claims["guarantee"]
    proven = "" if guarantee["epsilon"] is None else f", ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}"
    what = ", ".join(claims["modalities"]) + (" of some subjects" if claims["scope"] == "subjects" else "")
    held = any(check.name == f"digest of {WEIGHTS}" and check.outcome == "passed" for check in verdict.checks)
    return [
        head,
        *(
            []
            if held
            else ["  The certificate alone: no weights were held against it, so it says nothing of any model."]
        ),
        f"  {what} deleted from {claims['model']} by the method {claims['method']}: {guarantee['kind']}{proven}",
        f"  weights {claims['weights']}",
        f"  copies of the old weights erased: {claims['erasure']['claim']}",
        f"  trust file {verdict.trust}",
    ]
