"""`mbd doctor`."""

import sys
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import JSON, print_result
from mbd.errors import ExitCode

if TYPE_CHECKING:
    from mbd.doctor import DoctorFinding
    from mbd.params import Params


@click.command()
@JSON
@click.option("--sbom", is_flag=True, help="Print the installed packages as CycloneDX JSON instead.")
@with_params
def command(params: "Params", as_json: bool, sbom: bool) -> None:
    """Check Python, packages, device, DVC remotes, store, keys, Pushgateway and Kubeflow, with hints."""
    from mbd.doctor import CheckState, diagnose
    from mbd.doctor.installation import bill_of_materials

    if sbom:
        print_result(bill_of_materials(), "", as_json=True)
        return
    findings = diagnose(params)
    failed = [finding.name for finding in findings if finding.state is CheckState.FAILED]
    end = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    print_result({"healthy": not failed, "checks": findings}, f"{_text(findings)}\n\n{end}", as_json=as_json)
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
