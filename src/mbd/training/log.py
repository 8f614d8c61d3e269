"""How a training went, for people and for DVC: `history.csv`, and `live/` as dvclive writes it.

`history.csv` has a row for each epoch (joint) or module (lattice) and all terms side by side; `live/` has a file for
each term, which `dvc plots` and DVC's tools for editors find by themselves. Neither holds a time, so that the same
training writes the same bytes.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from mbd.errors import MbdError, MissingExtraError
from mbd.files import write_file

HISTORY = "history.csv"
LIVE = "live"

Row = Mapping[str, float | str]


def write_history(folder: Path, history: Sequence[Row]) -> None:
    """Write the log of a training into `folder`."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in history)
    write_file(folder / HISTORY, text.getvalue())
    _write_live(folder / LIVE, history)


def _write_live(folder: Path, history: Sequence[Row]) -> None:
    try:
        from dvclive import Live  # noqa: PLC0415 -- brings DVC along, which nothing else here needs
    except ImportError as error:
        raise MissingExtraError("the log of a training", "train", "dvclive") from error
    try:
        opened = Live(dir=str(folder), save_dvc_exp=False, dvcyaml=None, report=None)
    except Exception as error:  # dvclive lets errors of git through, such as that of a repository without commits
        raise MbdError(
            f"dvclive cannot log here: {error}", hint="in a new git repository, make a first commit and run again"
        ) from error
    with opened as live:
        for number, row in enumerate(history):
            live.step = int(row.get("epoch", number))
            for name, value in row.items():
                if name != "epoch" and isinstance(value, float):
                    live.log_metric(name, float(_cell(value)))
            live.next_step()


def _cell(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
