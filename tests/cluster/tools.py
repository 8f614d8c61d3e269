"""The programs of the cluster, compiled from Go modules whose versions and checksums are in `tools/`.

Run as `python -m tests.cluster.tools` where the Go module proxy can be reached. What was compiled is kept in the user's
cache under the digest of the module's `go.mod` and `go.sum`, and compiled once.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

MODULES = Path(__file__).parent / "tools"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "missing-by-design" / "cluster"
_PROGRAM_OF = {"etcd": "server", "pause": "pause"}
"""module: program, where the module has one alone; elsewhere a program has the name of its package"""


def program(module: str, name: str = "") -> Path:
    """Return where a program of a module is kept."""
    described = b"".join(path.read_bytes() for path in sorted((MODULES / module).glob("*.*")))
    folder = CACHE / f"{module}-{hashlib.sha256(described).hexdigest()[:16]}"
    return folder / (name or _PROGRAM_OF[module])


def packages(module: str) -> list[str]:
    """Return the packages that a module names as its tools; one without any is a program itself."""
    named = re.findall(r"^(?:tool |\t)(\S+/\S+)$", (MODULES / module / "go.mod").read_text(), re.MULTILINE)
    return named or ["."]


def build(module: str) -> None:
    """Compile the programs of a module that are not there yet, as static files."""
    folder = program(module, "any").parent
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages(module):
        name = _PROGRAM_OF.get(module, package.rpartition("/")[2])
        if (folder / name).exists():
            continue
        print(f"== compiling {name} of {module}", flush=True)
        half = folder / f".{name}"
        command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(half), package]
        subprocess.run(command, cwd=MODULES / module, env=os.environ | {"CGO_ENABLED": "0"}, check=True)
        half.rename(folder / name)


if __name__ == "__main__":
    for folder in sorted(path.parent.name for path in MODULES.glob("*/go.mod")):
        build(folder)
