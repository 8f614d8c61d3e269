"""`mbd show`."""

from pathlib import Path

import click

from mbd.cli.common import FOLDER


@click.command()
@click.argument("folder", type=FOLDER, default="build")
def command(folder: Path) -> None:
    """List the steps that have run in FOLDER [build], with their digests and what to open first."""
    from mbd.errors import UsageError
    from mbd.files import STEP_FILE, read_json
    from mbd.report.text import table

    records = [(file.parent, read_json(file)) for file in folder.glob(f"**/{STEP_FILE}")]
    if not records:
        raise UsageError(
            "no step has written its outputs here", value=folder, hint="`make run` or `dvc repro` fills build/"
        )
    records.sort(key=lambda entry: entry[1]["started"])
    rows = [
        (
            record["step"],
            f"{record['duration_seconds']:.1f} s",
            record["outputs"]["digest"][:12],
            str(where / record.get("look_at", "")),
        )
        for where, record in records
    ]
    click.echo(table(["step", "took", "digest", "look at"], rows))
