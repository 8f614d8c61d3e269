"""`mbd show`."""

from pathlib import Path
from typing import Any

import click

from mbd.cli.options import FOLDER, JSON, log_options, print_result


@click.command()
@click.argument("folder", type=FOLDER, default="build")
@JSON
@log_options(hidden=True)
def command(folder: Path, as_json: bool) -> None:
    """List the steps that have run in FOLDER [build], with their digests and the file to open first."""
    from mbd.report.text import table

    steps = _steps(folder)
    rows = [(s["step"], f"{s['seconds']:.1f} s", s["digest"][:12], s["open"]) for s in steps]
    print_result(steps, table(["step", "took", "digest", "open"], rows), as_json=as_json)


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
