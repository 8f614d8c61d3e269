"""`mbd pipeline`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli.common import FOLDER, with_params
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.params import Params

_NAME = click.argument("name", metavar="NAME")
_MODALITY = click.option(
    "--modality", "modalities", multiple=True, metavar="MODALITY", help="Modality to forget; repeatable."
)
_SUBJECT = click.option(
    "--subject", "subjects", multiple=True, metavar="ID", help="Forget it of this subject only; repeatable."
)
_ARGUMENT = click.option(
    "--argument", "arguments", multiple=True, metavar="KEY=JSON", help="Argument of the pipeline; repeatable."
)


@click.group()
def command() -> None:
    """Kubeflow pipelines: compile them, run them here, submit and schedule them on a cluster."""


def _pipelines(module: str) -> Any:  # noqa: ANN401 -- a module
    """Return a module of the folder `pipelines`, which is part of a clone and not of the installed package."""
    here = Path.cwd()
    if not (here / "pipelines" / "compiling.py").is_file():
        raise UsageError(
            "there are no pipelines in the current folder",
            file=here / "pipelines",
            way_out="run this at the top of a clone of missing-by-design",
        )
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    return import_module(f"pipelines.{module}")


@command.command("compile")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--out", type=FOLDER, default="pipelines", show_default=True, help="Folder to write NAME.yaml to.")
@with_params
def compile_command(params: "Params", names: tuple[str, ...], out: Path) -> None:
    """Write pipelines (default: all) as the YAML that Kubeflow takes, and the components' READMEs."""
    for file in _pipelines("compiling").write(names, params.platform, out):
        click.echo(f"written to {file}")


@command.command()
@_NAME
@_MODALITY
@_SUBJECT
@_ARGUMENT
@click.option(
    "--runner",
    type=click.Choice(["subprocess", "docker"]),
    default="subprocess",
    show_default=True,
    help="Each step a process, or a container of platform.image.",
)
@click.option("--root", type=FOLDER, default="build/kfp", show_default=True, help="Folder for the steps' outputs.")
@click.option("--network", default="none", show_default=True, help="Docker network of the containers.")
@with_params
def run(
    params: "Params",
    name: str,
    modalities: tuple[str, ...],
    subjects: tuple[str, ...],
    arguments: tuple[str, ...],
    runner: str,
    root: Path,
    network: str,
) -> None:
    """Run a pipeline on this machine."""
    given = _pipelines("arguments").given(name, params, modalities, subjects, arguments)
    _pipelines("local").run_pipeline(name, params.platform, given, root, runner, network=network)
