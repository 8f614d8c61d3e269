"""`mbd certify`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--deletion", type=FOLDER, required=True, help="Deleted model, as `mbd delete` wrote it.")
@click.option(
    "--leakage", type=FOLDER, help="Attacks on it, as `mbd attack` wrote them; only subjects are forgotten without any."
)
@click.option("--evaluation", type=FOLDER, required=True, help="Evaluation of it, as `mbd evaluate` wrote it.")
@click.option(
    "--request",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON with reference, received and due of the request.",
)
@click.option("--supersedes", metavar="SHA256", help="Earlier certificate that this one replaces.")
@click.option("--out", type=FOLDER, required=True, help="Folder to write the certificate bundle to.")
@with_params
def command(
    params: "Params",
    deletion: Path,
    leakage: Path | None,
    evaluation: Path,
    request: Path | None,
    supersedes: str | None,
    out: Path,
) -> None:
    """Sign a certificate of a deletion, if the gate let the deleted model pass."""
    from mbd.steps import certify

    done = certify.run(params, deletion, leakage, evaluation, out, request=request, supersedes=supersedes)
    predicate = done.statement.predicate
    click.echo(f"certificate {done.certificate}")
    click.echo(f"{predicate.guarantee.kind} deletion of {', '.join(predicate.deleted.modalities)}, signed")
    click.echo(f"issued {predicate.issued:%Y-%m-%d %H:%M:%S} UTC; attack again by {predicate.reaudit_by:%Y-%m-%d}")
    if done.private:
        click.echo(f"commitment openings saved to {done.private}; back them up and keep them secret")
    click.echo(f"\nwritten to {out}")
