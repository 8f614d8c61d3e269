"""`mbd certify`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.common import with_params
from mbd.cli.options import FILE, FOLDER, JSON, print_result, report_written, suggest

if TYPE_CHECKING:
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.command()
@click.option("--deletion", type=FOLDER, required=True, help="Model after the deletion, as `mbd delete` wrote it.")
@click.option(
    "--leakage",
    type=FOLDER,
    help="Attacks on it, as `mbd attack` wrote them; not needed if only subjects were deleted.",
)
@click.option("--evaluation", type=FOLDER, required=True, help="Evaluation of it, as `mbd evaluate` wrote it.")
@click.option("--request", type=FILE, help="JSON file with reference, received and due of the request.")
@click.option("--supersedes", metavar="SHA256", help="Earlier certificate that this one replaces.")
@options.out("the certificate bundle")
@JSON
@with_params
def command(
    params: "Params",
    deletion: Path,
    leakage: Path | None,
    evaluation: Path,
    request: Path | None,
    supersedes: str | None,
    out: Path,
    as_json: bool,
) -> None:
    """Sign a certificate of a deletion that passed the gate."""
    from mbd.report.page.words import deadline
    from mbd.steps import certify

    done = certify.run(params, deletion, leakage, evaluation, out, request=request, supersedes=supersedes)
    predicate = done.statement.predicate
    text = (
        f"certificate {done.certificate}\n"
        f"{predicate.guarantee.kind} deletion of {', '.join(predicate.deleted.modalities)}, signed\n"
        f"issued {predicate.issued:%Y-%m-%d %H:%M:%S} UTC; {deadline(predicate)} {predicate.reaudit_by:%Y-%m-%d}"
    )
    print_result(done, text, as_json=as_json)
    if done.private:
        _LOG.info("commitment openings saved to %s; back them up and keep them secret", done.private)
    report_written("certificate bundle", out)
    suggest("publish", out, "--model", deletion, "--out", "PUBLISHED")
