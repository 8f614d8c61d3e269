"""A DVC repository with a history, a remote, pipeline outputs and other places that hold old copies."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.features.contract import FeatureSet
from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import Receipt
from mbd.params import Params
from mbd.purge.workspace import Workspace, workspace
from mbd.steps import purge
from mbd.steps.purge import Done, PurgePlan
from mbd.training.loop import Snapshots, TrainingState
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import ModelWorkspace
from tests.features.dvc_repository import SampleRepository

_IGNORED = "/config.local\n/tmp\n/cache\n"
_EXPORT = """stages:
  export:
    cmd: mkdir -p build/exported && cp build/model/model.safetensors build/exported/model.bin
    deps: [build/model/model.safetensors]
    outs: [build/exported/model.bin]
"""


@dataclass(frozen=True)
class PurgeWorkspace:
    """A repository in `folder`/work, and a certificate authority that has published the deletion of audio."""

    folder: Path
    authority: CertificateAuthority
    repository: SampleRepository
    kind: str

    @classmethod
    def make(
        cls,
        model_workspace: ModelWorkspace,
        folder: Path,
        remotes: dict[str, str],
        *,
        kind: str = "surgery",
        environment: dict[str, str],
    ) -> "PurgeWorkspace":
        """Make a repository with a FeatureSet and a model under DVC; `remotes`: name → URL and further lines."""
        work = folder / "work"
        repository = SampleRepository(work, environment)
        (work / ".dvc").mkdir(parents=True)
        (work / ".dvc" / ".gitignore").write_text(_IGNORED)
        lines = "".join(f"['remote \"{name}\"']\n    url = {lines}\n" for name, lines in remotes.items())
        (work / ".dvc" / "config").write_text(f"[core]\n    remote = {next(iter(remotes), '')}\n{lines}")
        model = "lattice" if kind == "exact" else "model"
        shutil.copytree(model_workspace.folder / "data", work / "build" / "features")
        shutil.copytree(model_workspace.folder / model, work / "build" / "model")
        repository.git("init", "--quiet", "--initial-branch=main")
        repository.dvc("add", "--quiet", "build/features", "build/model")
        repository.git("add", "--all")
        repository.git("commit", "--quiet", "--message", "a model that knows audio")
        authority = CertificateAuthority.make(model_workspace, folder / "authority")
        authority.publish(kind)
        return cls(folder, authority, repository, kind)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def receipt(self) -> Path:
        return self.authority.folder / f"published-{self.kind}" / "receipt.json"

    @property
    def certificate(self) -> str:
        return Receipt.read(self.receipt, "receipt", "").certificate

    def params(self, *settings: str) -> Params:
        return self.authority.params(*self._own, *settings)

    @property
    def _own(self) -> tuple[str, ...]:
        return (f"purge.tombstones={self.folder}/tombstones",)

    def old_weights(self) -> str:
        return sha256_file(
            self.authority.model_workspace.folder / ("lattice" if self.kind == "exact" else "model") / WEIGHTS
        )

    def audio_files(self) -> set[str]:
        """Digests of the feature files of audio."""
        digests = FeatureSet.open(self.authority.model_workspace.folder / "data").digests()
        return {digest for name, digest in digests.items() if name.endswith("/audio.safetensors")}

    def plan(self, *settings: str, deletion: Path | None = None) -> PurgePlan:
        return purge.plan(self.params(*settings), self.receipt, self.authority.url, deletion, root=self.work)

    def purge(self, *settings: str, deletion: Path | None = None) -> Done:
        planned = self.plan(*settings, deletion=deletion)
        return purge.run(self.params(*settings), planned, self.authority.url)

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the arguments of an `mbd purge …` in this workspace."""
        sets = [part for setting in (*self.authority.settings, *self._own) for part in ("--set", setting)]
        return ["purge", *map(str, arguments), "--store", self.authority.url, *sets]

    def purge_workspace(self, *settings: str) -> Workspace:
        return workspace(self.params(*settings), self.authority.url, root=self.work)

    def scatter(self) -> None:
        """Leave copies where work leaves them: pipeline outputs, a killed training, a temporary folder, references."""
        build, git = self.work / "build", self.repository.git
        shutil.copytree(build / "model", build / "kfp" / "train-1" / "train" / "model")
        shutil.copytree(build / "model", self.folder / "machine" / "tmp" / "mbd-request-killed" / "base")
        weights = {"modality.audio.mean": np.ones(6, np.float32)}
        Snapshots(build / ".model.resume", "key").save(TrainingState(weights=weights))
        git("tag", "v1")
        git("branch", "release")
        git("update-ref", "refs/exps/aa/bb/some-experiment", "HEAD")
        (self.work / "notes.txt").write_text("nothing old\n")
        git("add", "notes.txt")
        git("commit", "--quiet", "--message", "later work")

    def experiment(self) -> None:
        """Let DVC run a stage that exports the model, and keep it as an experiment: a run cache comes with it."""
        (self.work / "dvc.yaml").write_text(_EXPORT)
        self.repository.dvc("repro", "--quiet")
        self.repository.git("add", "--all")
        self.repository.git("commit", "--quiet", "--message", "exported")
        self.repository.dvc("exp", "save", "--quiet", "--name", "old-experiment")

    def run_pipeline(self) -> None:
        """Let kfp itself leave a model in the folder of local pipelines."""
        from kfp import dsl, local

        @dsl.component(base_image="python:3.11", install_kfp_package=False)  # type: ignore[untyped-decorator]
        def train(source: str, model: dsl.Output[dsl.Model]) -> None:

            import shutil as files

            files.copyfile(source, model.path)

        @dsl.pipeline(name="tiny")  # type: ignore[untyped-decorator]
        def tiny(source: str) -> None:
            train(source=source)

        root = self.work / "build" / "kfp"
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=True)
        tiny(source=str(self.work / "build" / "model" / WEIGHTS))

    def moved_to(self, folder: Path, environment: dict[str, str]) -> "PurgeWorkspace":
        """Return a copy of everything in another folder."""
        for part in ("work", "remote", "authority"):
            shutil.copytree(self.folder / part, folder / part, symlinks=True)
        authority = CertificateAuthority(folder / "authority", self.authority.model_workspace)
        return PurgeWorkspace(folder, authority, SampleRepository(folder / "work", environment), self.kind)

    def clone(self) -> SampleRepository:
        """Clone the repository with everything that its cache holds."""
        folder = self.folder / "clone"
        self.repository.git("clone", "--quiet", str(self.work), str(folder))
        shutil.copytree(self.work / ".dvc" / "cache", folder / ".dvc" / "cache")
        return SampleRepository(folder, self.repository.environment)


def digests_below(*folders: Path) -> dict[Path, str]:
    """Return the SHA-256 of every file below these folders."""
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: sha256_file(path) for path in files}


def holding(digests: Iterable[str], *folders: Path) -> list[Path]:
    """Return the files below these folders with one of these digests."""
    wanted = set(digests)
    return [path for path, digest in digests_below(*folders).items() if digest in wanted]
