"""`mbd features`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import JSON, print_result, report_written, suggest
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@options.out("the FeatureSet")
@click.option("--modality", metavar="MODALITY", help="Modality to be revoked later: data without it are refused.")
@click.option("--dvc-repo", metavar="URL", help="Fetch a FeatureSet from this DVC repository instead of a source.")
@click.option("--dvc-rev", metavar="REV", help="Its branch, tag or commit [default: HEAD].")
@click.option("--dvc-path", metavar="PATH", help="Folder of the FeatureSet in that repository.")
@click.option("--dvc-remote", metavar="NAME", help="DVC remote to read from [default: the repository's].")
@JSON
@with_params
def command(
    params: "Params",
    out: Path,
    modality: str | None,
    dvc_repo: str | None,
    dvc_rev: str | None,
    dvc_path: str | None,
    dvc_remote: str | None,
    as_json: bool,
) -> None:
    """Convert feature data of any source to a FeatureSet, and validate it.

    The source is the parameter features.source: synthetic data by default; for other data,
    --set features.source.path=FILE (.npz, a table, MMSA and IEMOCAP pickles, CMU folders, a list of media files).
    """
    from mbd.steps import features

    if dvc_repo is None:
        _refuse_without_repository({"--dvc-rev": dvc_rev, "--dvc-path": dvc_path, "--dvc-remote": dvc_remote})
        summary = features.run(params, out, modality)
    elif not dvc_path:
        raise UsageError("--dvc-repo needs --dvc-path, the folder of the FeatureSet in the repository")
    else:
        from mbd.shredding.vault import made_plain

        prepare = made_plain(params.shredding, _LOG.warning)
        summary = features.run_revision(out, dvc_repo, dvc_rev or "HEAD", dvc_path, dvc_remote, prepare)
    print_result(summary, summary.to_text(), as_json=as_json)
    report_written("FeatureSet", out)
    suggest("train", "--features", out, "--out", "MODEL")


def _refuse_without_repository(options: dict[str, str | None]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} needs --dvc-repo", key=name, value=value)
