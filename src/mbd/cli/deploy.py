"""`mbd deploy`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.options import FOLDER, JSON, CommandGroup, log_options, print_result, with_params

if TYPE_CHECKING:
    from mbd.params import Params

VALUES = click.option(
    "--values",
    type=click.Path(path_type=Path),
    default="values.yaml",
    show_default=True,
    help="What is no parameter (`mbd deploy init` writes it).",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Everything that a namespace beside Kubeflow needs, as manifests for Kubernetes."""


@command.command()
@click.option("--out", type=FOLDER, default=".", show_default=True, help="Folder to write to.")
@JSON
@log_options(hidden=True)
def init(out: Path) -> None:
    """Write values.yaml and params.yaml for a cluster, with comments, to be edited; files that are there stay."""
    from mbd.deployment.values import write_start

    files = write_start(out)
    print_result(files, "\n".join(f"written to {file}" for file in files) or "both are there")


@command.command()
@VALUES
@with_params
def render(params: "Params", values: Path) -> None:
    """Print the manifests, for `kubectl apply --filename -`, of the values and of the parameters of the pipelines."""
    import yaml

    from mbd.deployment.manifests import render as rendered
    from mbd.deployment.values import read_values

    if "@sha256:" not in params.platform.image:
        click.echo(f"warning: platform.image={params.platform.image} is not pinned by digest (NAME@sha256:…)", err=True)
    click.echo(yaml.safe_dump_all(rendered(read_values(values), params), sort_keys=False), nl=False)
