"""A small workspace in which the commands of the handbook run: a clone with few rows, where `make run` has run once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.docs.blocks import PYTHON, REPOSITORY, Block
from tests.test_dvc_pipeline import SMALL, merge

_SECONDS = 600
_SMALLER: dict[str, object] = {
    "attacks": {"resamples": 100, "relearn_rows": [32]},
    "deletion": {"certified": {"finetune_epochs": 2}},
    "evaluation": {"missing_rates": [0.3]},
}


class Workspace:
    """A clone of the repository as it lies here, changed files included, on a machine that is the folder around it."""

    def __init__(self, folder: Path, venv: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        programs = [str(venv / "bin"), str(Path(sys.executable).parent)]
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "DVC_", "AWS_", "MBD_", "PYTEST"))
        }
        (folder.parent / "tmp").mkdir(parents=True, exist_ok=True)
        self.environment = {
            **inherited,
            "PATH": os.pathsep.join([*programs, inherited["PATH"]]),
            "HOME": str(folder.parent),
            "XDG_CACHE_HOME": str(folder.parent / ".cache"),
            "TMPDIR": str(folder.parent / "tmp"),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(folder.parent / "site"),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "user.name",
            "GIT_CONFIG_VALUE_0": "reader",
            "GIT_CONFIG_KEY_1": "user.email",
            "GIT_CONFIG_VALUE_1": "reader@example.org",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "VENV": str(venv),
            **(environment or {}),
        }

    def fill(self) -> None:
        """Copy the tracked files, make the parameters small, and run the main job."""
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=REPOSITORY, text=True)
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / name, self.folder / name)
        params = self.folder / "params.yaml"
        small = merge(merge(yaml.safe_load(params.read_text()), SMALL), _SMALLER)
        params.write_text(yaml.safe_dump(small, sort_keys=False))
        os.utime(self.folder / "pyproject.toml", (0, 0))  # older than the stamp of the installation
        os.utime(self.folder / "constraints.txt", (0, 0))
        self.bash("git init -q && git add . && git commit -q -m start && make run", "the workspace")

    def run(self, block: Block) -> None:
        """Run a block as a reader does."""
        script = f"python - <<'END-OF-BLOCK'\n{block.text}END-OF-BLOCK\n" if block.kind == PYTHON else block.text
        self.bash(script, block.place)

    def bash(self, script: str, place: str) -> None:
        """Run a script that has to succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, f"{place} ends with {done.returncode}\n{script}\n{done.stdout[-6000:]}"
