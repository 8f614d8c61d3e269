"""The code blocks of a page: what a reader would type, where it is, and whether a test can run it.

```sh              is run by tests/docs/test_commands.py in a small workspace
```sh services     is run by tests/integration/test_docs.py: it needs a server, or takes a minute
```sh cluster      is run by tests/cluster/test_walk.py: it needs a Kubernetes
```sh kubeflow     is run by tests/kubeflow/test_on_a_real_one.py: it needs Kubeflow Pipelines
```sh unexecuted   needs what no test machine has; its commands are parsed
```python          is run as a script
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
GENERATED = {"commands.md", "parameters.md"}
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *(page for page in sorted((REPOSITORY / "docs").glob("*.md")) if page.name not in GENERATED),
]
RUN, SERVICES, UNEXECUTED, PYTHON = "sh", "sh services", "sh unexecuted", "python"
CLUSTER, KUBEFLOW = "sh cluster", "sh kubeflow"
_FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    def commands(self) -> Iterator[list[str]]:
        """Yield the words of every command, one for each line once continued lines are joined."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def blocks(page: Path, *kinds: str) -> list[Block]:
    """Return the blocks of a page, of these kinds or all."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match["kind"].strip(), match["text"])
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if not kinds or block.kind in kinds]


def pages_with(*kinds: str) -> list[Path]:
    """Return the pages that have blocks of these kinds."""
    return [page for page in PAGES if blocks(page, *kinds)]


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
