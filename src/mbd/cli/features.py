"""`mbd features`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--out", type=FOLDER, required=True, help="Folder to write the FeatureSet to.")
@click.option("--dvc-repo", metavar="URL", help="Bring a FeatureSet from this DVC repository instead of a source.")
@click.option("--dvc-rev", metavar="REV", help="Its branch, tag or commit [default: HEAD].")
@click.option("--dvc-path", metavar="PATH", help="Folder of the FeatureSet in that repository.")
@click.option("--dvc-remote", metavar="NAME", help="DVC remote to read from [default: the repository's].")
@with_params
def command(
    params: "Params",
    out: Path,
    dvc_repo: str | None,
    dvc_rev: str | None,
    dvc_path: str | None,
    dvc_remote: str | None,
) -> None:
    """Bring feature data of any source into one checked form, a FeatureSet.

    The source is features.source of the parameters: synthetic data, unless they say otherwise, as by
    --set features.source.kind=npz --set features.source.path=FILE.
    """
    from mbd.steps import features

    if dvc_repo is None:
        _refuse_without_repository({"--dvc-rev": dvc_rev, "--dvc-path": dvc_path, "--dvc-remote": dvc_remote})
        summary = features.run(params, out)
    elif not dvc_path:
        raise UsageError("--dvc-repo needs --dvc-path, the folder of the FeatureSet in the repository")
    else:
        from mbd.shredding.vault import made_plain

        prepare = made_plain(params.shredding, lambda text: click.echo(text, err=True))
        summary = features.run_revision(out, dvc_repo, dvc_rev or "HEAD", dvc_path, dvc_remote, prepare)
    click.echo(summary.to_text())
    click.echo(f"\nwritten to {out}")


def _refuse_without_repository(options: dict[str, str | None]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} says nothing without --dvc-repo", key=name, value=value)
