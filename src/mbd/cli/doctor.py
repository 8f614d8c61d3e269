"""`mbd doctor`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.errors import ExitCode

if TYPE_CHECKING:
    from mbd.doctor import DoctorFinding
    from mbd.params import Params


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--sbom", is_flag=True, help="Print the installed packages as CycloneDX JSON instead.")
@with_params
def command(params: "Params", as_json: bool, sbom: bool) -> None:
    """Check Python, packages, device, DVC remotes, store, gateway and Kubeflow host; say what to do."""
    from mbd.doctor import CheckState, diagnose
    from mbd.doctor.sbom import bill_of_materials
    from mbd.files import to_json

    if sbom:
        click.echo(to_json(bill_of_materials()), nl=False)
        return
    findings = diagnose(params)
    failed = [finding.name for finding in findings if finding.state is CheckState.FAILED]
    if as_json:
        click.echo(to_json({"healthy": not failed, "checks": [asdict(finding) for finding in findings]}), nl=False)
    else:
        click.echo(_text(findings))
        click.echo(f"\nfailed: {', '.join(failed)}" if failed else "\nnothing failed")
    if failed:
        sys.exit(ExitCode.FAILURE)


def _text(findings: list["DoctorFinding"]) -> str:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.name:{width}}  {finding.state:14}  {finding.found}")
        if finding.to_do:
            lines.append(f"{'':{width}}  {'':14}  → {finding.to_do}")
    return "\n".join(lines)
