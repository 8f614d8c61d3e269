"""A project of one's own: parameters, stages of DVC and a README, with which `dvc repro` leads to a certificate.

The stages are those of the repository of this package, or a wheel's copy of them. They depend on the data, on the
module and on parameters; the lines that name sources of this package are left out.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from mbd.errors import MbdError, MissingExtraError, UsageError
from mbd.files import find_bundled, to_json, write_file
from mbd.git import git
from mbd.params import Params, to_yaml

_STAGES, _PRODUCTION = ("dvc.yaml", "release/dvc.yaml"), "production/dvc.yaml"
_OURS = re.compile(r"^ +- (data|src/\S+)\n", re.MULTILINE)
_IGNORED = "/build/\n"
_README = """# {name}

`dvc repro` trains a model, deletes {modality} from it and attacks the result; `mbd show` lists what is in `build/`.
`dvc repro release/dvc.yaml` signs and publishes a certificate; it makes keys in `build/keys`: back them up.
`mbd verify build/published --model build/deleted --store {store} --trust {trust}` verifies it.
`params.yaml` holds every parameter with its meaning; after a change only the stages that it affects run again.
"""


def run(
    params: Params, folder: Path, more: Mapping[str, str] = MappingProxyType({}), *, production: bool = False
) -> list[Path]:
    """Write a project into `folder`, and return its files: with `production`, the stages that register a model, too.

    What is there already is neither changed nor replaced, but for `.gitignore`. Paths in the parameters are relative to
    the folder; `more` has further files by their names.

    Raises:
        UsageError: the folder has other parameters or stages.
    """
    stages = (*_STAGES, _PRODUCTION) if production else _STAGES
    texts = {name: _without_sources(find_bundled(name).read_text(), params, folder) for name in stages}
    texts |= {"params.yaml": to_yaml(params), **more}
    for name, text in texts.items():
        if (folder / name).exists() and (folder / name).read_text() != text:
            raise UsageError("there is another file of this name", file=folder / name, hint="mbd init OTHER-FOLDER")
    readme = _README.format(
        name=folder.resolve().name,
        modality=params.requests.modality,
        store=params.store.url,
        trust=params.certificate.trust,
    )
    ignored = folder / ".gitignore"
    before = ignored.read_text() if ignored.exists() else ""
    if _IGNORED not in before.splitlines(keepends=True):
        texts[ignored.name] = (before if before.endswith("\n") or not before else f"{before}\n") + _IGNORED
    if not (folder / "README.md").exists():
        texts["README.md"] = readme
    for name, text in texts.items():
        write_file(folder / name, text)
    return [folder / name for name in texts]


def start_dvc(folder: Path) -> None:
    """Make `folder` a repository of DVC, in git if it is in one, unless it is a part of one.

    Raises:
        MbdError: DVC fails, or is not installed.
    """
    here = folder.resolve()
    if any((above / ".dvc").is_dir() for above in (here, *here.parents)):
        return
    top = git("-C", str(here), "rev-parse", "--show-toplevel")
    how = ["--no-scm"] if top.returncode else [] if Path(top.stdout.strip()) == here else ["--subdir"]
    if not find_spec("dvc"):
        raise MissingExtraError("dvc")
    command = [sys.executable, "-m", "dvc", "init", "--quiet", *how]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)  # noqa: S603 -- no shell
    if done.returncode:
        raise MbdError(f"`dvc init` fails: {done.stderr.strip()}", file=folder)


def _without_sources(text: str, params: Params, folder: Path) -> str:
    module = params.model.backbone.partition(":")[0].replace(".", "/")
    own = next((name for name in (f"{module}.py", f"{module}/__init__.py") if (folder / name).exists()), None)
    kept = {"data": params.features.source.path, "src/mbd/model": own}

    def line(match: re.Match[str]) -> str:
        name = kept.get(match[1])
        return match[0].replace(match[1], to_json(name).strip()) if name else ""

    return re.sub(r"\n +deps:\n(?= +params:)", "\n", _OURS.sub(line, text))
