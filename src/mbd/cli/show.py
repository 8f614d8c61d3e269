"""To find your way: `mbd init`, `show`, `params` and `doctor`."""

import json
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import log_options, params_options, print_result, with_params
from mbd.errors import ExitCode

if TYPE_CHECKING:
    from mbd.doctor import DoctorFinding
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@click.argument("folder", type=options.FOLDER, default=".")
@click.option("--data", type=click.Path(exists=True), help="Your data: features.source.path, relative to FOLDER.")
@click.option("--model", metavar="PACKAGE.MODULE:FACTORY", help="Your model: model.backbone, in FOLDER or installed.")
@options.flag("--kubeflow", "Also write the pipelines, the stages that register a model, and values.yaml.")
@options.JSON
@params_options
def init_command(
    folder: Path,
    data: str | None,
    model: str | None,
    params_file: Path | None,
    settings: tuple[str, ...],
    *,
    kubeflow: bool,
) -> None:
    """Write params.yaml, DVC stages and a README into FOLDER [.]: a project that `dvc repro` carries out.

    What you set is written into params.yaml. With --model, unless you set others, certificate.model is the name of its
    factory and deletion.method is `exact`: a module of any shape is trained again without the modality. With --kubeflow
    the parameters name the secrets, the config map and the claim of a cluster, for the pipelines and for `mbd deploy
    render`.
    """
    from mbd.cli.pipeline import pipelines
    from mbd.deployment.values import DeployValues, with_names
    from mbd.params import load_params, to_yaml
    from mbd.steps import init

    if data and not Path(data).is_absolute():
        data = os.path.relpath(data, folder)
    own = {"features.source.path": data}
    if model:
        own |= {"model.backbone": model, "deletion.method": "exact", "certificate.model": model.partition(":")[2]}
    all_settings = (*(f"{key}={json.dumps(value)}" for key, value in own.items() if value), *settings)
    if kubeflow:
        all_settings = with_names(params_file, all_settings)
    params = load_params(params_file, all_settings)
    values = {"values.yaml": to_yaml(DeployValues())} if kubeflow else {}
    written = init.run(params, folder, values, production=kubeflow)
    if kubeflow:
        written += pipelines("compiling").write((), params.platform, folder / "pipelines")
    print_result(written, "\n".join(f"written: {each}" for each in written))
    init.start_dvc(folder)
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    _LOG.info("next: %sdvc repro dvc.yaml release/dvc.yaml", go)


@click.command()
@click.argument("folder", type=options.FOLDER, default="build")
@options.JSON
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
        hint = "`mbd init` and `dvc repro` fill build/"
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
@options.flag("--schema", "Print the JSON Schema of params.yaml instead.")
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
@options.flag("--sbom", "Print the installed packages as CycloneDX JSON instead.")
@options.flag("--cluster", "Check a deployment on Kubernetes instead, by kubectl and in a pod.")
@options.path("--values", "Of the deployment.", default="values.yaml", show_default=True)
@with_params
def doctor_command(params: "Params", sbom: bool, cluster: bool, values: Path) -> None:
    """Check Python, packages, device, DVC remotes, store, keys, Pushgateway and Kubeflow, with hints.

    With --cluster: secrets, claims and config maps of a deployment, what Kubeflow itself needs, and all of the above
    in a pod. Container paths in the parameters are then looked for in the pod, not here.
    """
    from mbd.doctor import CheckState, diagnose
    from mbd.doctor.installation import bill_of_materials

    if sbom:
        print_result(bill_of_materials())
        return
    if cluster:
        from mbd.deployment.cluster import check_cluster
        from mbd.deployment.values import read_values

        findings = list(check_cluster(read_values(values), params))
    else:
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
