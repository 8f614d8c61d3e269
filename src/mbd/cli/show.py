"""To find your way: `mbd show`, `params` and `doctor`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli.options import FOLDER, JSON, log_options, print_result, with_params
from mbd.errors import ExitCode

if TYPE_CHECKING:
    from mbd.doctor import DoctorFinding
    from mbd.params import Params


@click.command()
@click.argument("folder", type=FOLDER, default="build")
@JSON
@log_options(hidden=True)
def show_command(folder: Path) -> None:
    """List the steps that have run in FOLDER [build], with their digests and the file to open first."""
    from mbd.report.text import table

    steps = _steps(folder)
    rows = [(s["step"], f"{s['seconds']:.1f} s", s["digest"][:12], s["open"]) for s in steps]
    print_result(steps, table(["step", "took", "digest", "open"], rows))


def _steps(folder: Path) -> list[dict[str, Any]]:
    """Return the steps whose outputs are in `folder`, in the order in which they ran."""
    from mbd.errors import UsageError
    from mbd.files import STEP_FILE, read_json

    records = [(file.parent, read_json(file)) for file in folder.glob(f"**/{STEP_FILE}")]
    if not records:
        hint = "`make run` or `dvc repro` fills build/"
        raise UsageError("no step has written anything here", value=folder, hint=hint)
    return [
        {
            "step": record["step"],
            "seconds": record["duration_seconds"],
            "digest": record["outputs"]["digest"],
            "open": str(where / record.get("look_at", "")),
        }
        for where, record in sorted(records, key=lambda entry: str(entry[1]["started"]))
    ]


@click.command()
@click.option("--schema", is_flag=True, help="Print the JSON Schema of params.yaml instead.")
@JSON
@with_params
def params_command(params: "Params", schema: bool) -> None:
    """Print the value and the meaning of every parameter, and the digest of all values."""
    from mbd.params import params_digest, to_yaml

    if schema:
        print_result(type(params).model_json_schema())
        return
    digest = f"sha256:{params_digest(params)}"
    print_result({"params": params, "digest": digest}, f"{to_yaml(params)}# digest: {digest}")


@click.command()
@JSON
@click.option("--sbom", is_flag=True, help="Print the installed packages as CycloneDX JSON instead.")
@with_params
def doctor_command(params: "Params", sbom: bool) -> None:
    """Check Python, packages, device, DVC remotes, store, keys, Pushgateway and Kubeflow, with hints."""
    from mbd.doctor import CheckState, diagnose
    from mbd.doctor.installation import bill_of_materials

    if sbom:
        print_result(bill_of_materials())
        return
    findings = diagnose(params)
    failed = [finding.name for finding in findings if finding.state is CheckState.FAILED]
    end = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    print_result({"healthy": not failed, "checks": findings}, f"{_text(findings)}\n\n{end}")
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
