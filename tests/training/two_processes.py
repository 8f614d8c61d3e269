"""A command of `mbd` as two processes that share the work, as `torchrun` starts it."""

import os
import subprocess
from pathlib import Path


def run_by_two(quick: Path, folder: Path, *arguments: str) -> None:
    """Run `mbd` in `folder`, and see that it ends well and that only one of the two says so."""
    result = subprocess.run(
        [
            *(f"{quick}/bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("--no-python", f"{quick}/bin/mbd", *arguments),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("written to") == 1
