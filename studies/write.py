"""Write one study from its cells: `python -m studies.write NAME`."""

import sys
from importlib import import_module

from studies.layout import Layout
from studies.outcome import write_outcome
from studies.plan import read_plan


def main(name: str) -> None:
    """Make the study `name` of the plan's cells, and write it."""
    layout = Layout.of(read_plan())
    outcome = import_module(f"studies.{name.replace('-', '_')}").study(layout)
    write_outcome(outcome, layout.study(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
