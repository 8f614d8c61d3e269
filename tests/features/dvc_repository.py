"""A real git repository with DVC in it, as a data scientist would make it."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mbd.files import sha256_file
from tests.features.build import synthetic_set

STAGE = "build/features"
ADDED = "data/added"
_DVC_YAML = f"""
stages:
  features:
    cmd: 'true'
    outs: [{STAGE}/manifest.json, {STAGE}/splits, {STAGE}/summary.json, {STAGE}/label_histogram.csv, {STAGE}/step.json]
    metrics: [{STAGE}/metrics.json]
"""


def isolated(folder: Path, quick: Path | None = None) -> dict[str, str]:
    """Environment in which git and DVC know nothing but `folder`; with `quick`, its programs are used."""
    names = {"HOME": "home", "DVC_SITE_CACHE_DIR": "site", "XDG_CONFIG_HOME": "xdg", "XDG_CACHE_HOME": "xdg"}
    for name in names.values():
        (folder / name).mkdir(parents=True, exist_ok=True)
    who = {f"GIT_{role}_{part}": "tests@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    return {key: str(folder / name) for key, name in names.items()} | {
        "DVC_NO_ANALYTICS": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **who,
        **({"PATH": f"{quick / 'bin'}{os.pathsep}{os.environ['PATH']}"} if quick else {}),
    }


def configure_dvc(folder: Path, **remotes: str) -> None:
    """Make `folder` a DVC repository by the one file that makes it one; a remote is its URL and further lines."""
    (folder / ".dvc").mkdir(parents=True)
    sections = "".join(f"['remote \"{name}\"']\n    url = {settings}\n" for name, settings in remotes.items())
    (folder / ".dvc" / "config").write_text(f"[core]\n    no_scm = true\n{sections}")


@dataclass(frozen=True)
class SampleRepository:
    """A repository in `folder`; every command runs in `environment` on top of the process's own."""

    folder: Path
    environment: dict[str, str]

    @classmethod
    def make(cls, folder: Path, environment: dict[str, str], remote: str, **options: str) -> "SampleRepository":
        """Initialise git and DVC, with a default remote."""
        folder.mkdir()
        repository = cls(folder, environment)
        repository.git("init", "--quiet", "--initial-branch=main")
        repository.dvc("init", "--quiet")
        repository.dvc("remote", "add", "--quiet", "--default", "store", remote)
        for key, value in options.items():
            repository.dvc("remote", "modify", "store", key, value)
        return repository

    def git(self, *arguments: str) -> str:
        """Run git here."""
        return self._run("git", *arguments)

    def dvc(self, *arguments: str) -> str:
        """Run DVC here."""
        return self._run("dvc", *arguments)

    def commit(self, seed: int, *, add: bool = False) -> tuple[str, str]:
        """Commit a FeatureSet, as outputs of a stage or added as a folder; return commit and manifest digest."""
        path = ADDED if add else STAGE
        out = synthetic_set(self.folder / path, f"features.seed={seed}")
        if add:
            self.dvc("add", "--quiet", path)
        else:
            (self.folder / "dvc.yaml").write_text(_DVC_YAML)
            self.dvc("commit", "--quiet", "--force")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", f"features of seed {seed}")
        return self.git("rev-parse", "HEAD").strip(), sha256_file(out / "manifest.json")

    def forget_cache(self) -> None:
        """Remove everything that is not in git or in the remote."""
        shutil.rmtree(self.folder / ".dvc" / "cache")
        shutil.rmtree(self.folder / "build")

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=os.environ | self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command} failed:\n{done.stderr}"
        return done.stdout
