"""`mbd deploy`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.options import CommandGroup, with_params_only

if TYPE_CHECKING:
    from mbd.params import Params

VALUES = click.option(
    "--values",
    type=click.Path(path_type=Path),
    default="values.yaml",
    show_default=True,
    help="What is no parameter (`mbd init --kubeflow` writes it).",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Everything that a namespace beside Kubeflow needs, as manifests for Kubernetes."""


@command.command()
@VALUES
@with_params_only
def render(params: "Params", values: Path) -> None:
    """Print the manifests, for `kubectl apply --filename -`, of the values and of the parameters of the pipelines."""
    import yaml

    from mbd.deployment.manifests import render as rendered
    from mbd.deployment.values import read_values

    if "@sha256:" not in params.platform.image:
        click.echo(f"warning: platform.image={params.platform.image} is not pinned by digest (NAME@sha256:…)", err=True)
    click.echo(yaml.safe_dump_all(rendered(read_values(values), params), sort_keys=False), nl=False)
