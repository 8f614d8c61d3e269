"""What a folder of step outputs holds: each step, how long it took, its digest, and what to open first."""

from pathlib import Path

from mbd.errors import UsageError
from mbd.files import STEP_FILE, read_json
from mbd.report.text import table


def overview(folder: Path) -> str:
    """Return a table of the steps whose outputs lie in `folder`, in the order in which they ran."""
    records = [(file.parent, read_json(file)) for file in folder.glob(f"**/{STEP_FILE}")]
    if not records:
        raise UsageError(
            "no step has written anything here", value=folder, hint="`make run` or `dvc repro` fills build/"
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
    return table(["step", "took", "digest", "look at"], rows)
