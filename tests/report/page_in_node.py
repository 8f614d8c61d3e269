"""The page's own script outside a browser: Node.js runs its checks, one case for each line of JSON."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mbd.report.page.html import checking_script

NODE = shutil.which("node")
_DRIVER = """
const { readFileSync } = require("node:fs");
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { files, expected, now } = JSON.parse(line);
  const given = new Map(Object.entries(files).map(([name, path]) => [name, new Blob([readFileSync(path)])]));
  const checks = await verifyFiles(given, expected, now, () => {});
  const outcomes = Object.fromEntries(checks.map(({ name, outcome }) => [name, outcome]));
  process.stdout.write(`${JSON.stringify({ decision: decide(checks), genuine: genuine(checks), outcomes })}\\n`);
});
"""


@dataclass(frozen=True)
class PageVerdict:
    """What the page decides."""

    decision: str
    genuine: bool
    outcomes: dict[str, str]


class NodePage:
    """A process that verifies as the page does."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def verify(self, files: Mapping[str, Path], expected: str, at: datetime) -> PageVerdict:
        """Give files, by name, to the page of the certificate `expected`."""
        paths = {name: str(path) for name, path in files.items()}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"files": paths, "expected": expected, "now": at.timestamp()}) + "\n")
        self._process.stdin.flush()
        return PageVerdict(**json.loads(self._process.stdout.readline()))


@contextmanager
def page_in_node() -> Iterator[NodePage]:
    """Start Node.js with the page's checks."""
    assert NODE
    code = '"use strict";\n' + checking_script() + _DRIVER
    with subprocess.Popen(
        [NODE, "--no-warnings", "-e", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield NodePage(process)
        finally:
            process.kill()
