"""How much there is to read: lines of `src/`, words of README and handbook, what a command loads, and its path.

    python -m tests.weight            of these sources
    python -m tests.weight REV        beside those of a revision: how much there was to read

The path of a command are the files in which one of its functions runs, in the order of the first call, without tools,
parameters, formats and stores.

The commands run on the models of the tests: an exact deletion, a surgery, its attacks, and a certificate that is
published in a folder. Then come the sizes of the golden certificates, and how many tests there are and assert wording.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
_LOADED = """
import inspect, json, sys
from pathlib import Path
from mbd.cli import main
run = {}
def called(frame, event, _):
    code, name = frame.f_code, frame.f_code.co_name
    if event == "call" and code.co_flags & inspect.CO_NEWLOCALS and name.isidentifier() and name.islower():
        run.setdefault(code.co_filename)
sys.setprofile(called)
try:
    main(sys.argv[2:])
finally:
    sys.setprofile(None)
    ours = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "mbd"}
    Path(sys.argv[1]).write_text(json.dumps([ours, list(run)]))
"""
_ASIDE = {"params", "formats", "storage"}


def lines_of(file: Path | str) -> int:
    """Return how many lines a file has."""
    return len(Path(file).read_bytes().splitlines())


def loaded_by(*arguments: object, codes: tuple[int, ...] = (0,)) -> dict[str, int]:
    """Return the modules of ours that `mbd ARGUMENTS` loads, with their lines; `codes`: how it may end."""
    return loaded_and_run_by(*arguments, codes=codes)[0]


def loaded_and_run_by(*arguments: object, codes: tuple[int, ...] = (0,)) -> tuple[dict[str, int], list[str]]:
    """Return the modules that `mbd ARGUMENTS` loads, with their lines, and its path."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "modules.json"
        command = [sys.executable, "-c", _LOADED, written, *map(str, arguments)]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=folder)
        assert ended.returncode in codes, ended.stderr
        loaded, run = json.loads(written.read_text())
    source = f"{SOURCE}/mbd/"
    path = [file.removeprefix(source) for file in run if file.startswith(source)]
    return {name: lines_of(file) for name, file in loaded.items()}, [
        file for file in path if "/" in file and file.partition("/")[0] not in _ASIDE
    ]


def sources_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return lines and files of each package below a folder `src`, and of all."""
    files = {file: lines_of(file) for file in folder.glob("mbd/**/*.py")}
    packages = {file: file.relative_to(folder / "mbd").parts for file in files}
    sizes = {"src": (sum(files.values()), len(files))}
    for name in sorted({parts[0] if len(parts) > 1 else "tools" for parts in packages.values()}):
        own = [file for file, parts in packages.items() if (parts[0] if len(parts) > 1 else "tools") == name]
        sizes[name] = sum(files[file] for file in own), len(own)
    return sizes


def compare(revision: str) -> None:
    """Print lines and files of each package, of a revision and now."""
    root = SOURCE.parent
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before, now = sources_of(Path(folder) / "src"), sources_of(SOURCE)
    print(f"package        lines  files   {revision[:12]:>12} → now")
    for name in sorted(before.keys() | now.keys(), key=lambda name: (name != "src", name)):
        old, new = before.get(name, (0, 0)), now.get(name, (0, 0))
        change = f"{name:<12} {new[0] - old[0]:+7,} {new[1] - old[1]:+6}"
        print(f"{change}   {old[0]:7,} in {old[1]:3} → {new[0]:,} in {new[1]}")


def count_tests(mark: str) -> str:
    """Return how many tests have a mark, of those that need no server."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", mark, "--ignore=tests/integration"]
    done = subprocess.run(
        [*command, "--ignore=tests/cluster"], capture_output=True, text=True, check=True, cwd=TESTS.parent
    )
    return done.stdout.splitlines()[-1]


def main() -> None:
    """Print the table."""
    if len(sys.argv) > 1:
        return compare(sys.argv[1])
    lines, files = sources_of(SOURCE)["src"]
    pages = [SOURCE.parent / "README.md", *sorted((SOURCE.parent / "docs").glob("*.md"))]
    words = [len(page.read_text(encoding="utf-8").split()) for page in pages]  # as `wc -w` counts, code and tables too
    print(f"src/: {lines:,} lines in {files} files; README: {words[0]:,} words, with the handbook {sum(words):,}")
    print("\ncommand   modules    lines     path")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        measured = _measure(Path(folder))
    for command, (modules, path) in measured.items():
        print(f"{command:<8}  {len(modules):7}  {sum(modules.values()):7,}  {len(path):7}")
    for command, (_, path) in measured.items():
        print(f"\n{command}: {' → '.join(path)}")
    sizes = [file.stat().st_size for file in TESTS.glob("golden/certificates/*/*/bundle/certificate.json")]
    wording = sum(file.read_text().count("match=") for file in TESTS.rglob("*.py") if file != Path(__file__))
    print(f"\ngolden certificates: {min(sizes):,} to {max(sizes):,} bytes")
    print(f"make test: {count_tests('not slow')}\nmake test-all: {count_tests('slow')}")
    print(f"errors asserted by their wording (match=): {wording}")


def _measure(folder: Path) -> Mapping[str, tuple[Mapping[str, int], list[str]]]:
    from tests.certificate.authority import CertificateAuthority
    from tests.certificate.build import make_home

    (folder / "home").mkdir()
    workspace = make_home(folder / "home")
    authority = CertificateAuthority.make(workspace, folder / "authority")
    bundle = authority.publish("exact")
    home, deleted = workspace.folder, workspace.deletion("exact")
    read = ("--model", deleted, "--store", authority.url, "--trust", authority.folder / "keys" / "trust.json")
    models = ("--before", home / "model", "--after", folder / "deleted", "--reference", home / "silent")
    audit = ("--modality", "audio", "--out", folder / "leakage", "--set", "attacks.resamples=100")
    given = ("delete", "--features", home / "data", "--modality", "audio")
    exact = ("--model", home / "lattice", "--out", folder / "exact", "--set", "deletion.method=exact")
    return {
        "delete": loaded_and_run_by(*given, *exact),
        "surgery": loaded_and_run_by(*given, "--model", home / "model", "--out", folder / "deleted"),
        "attack": loaded_and_run_by("attack", "--features", home / "data", *models, *audit, codes=(0, 3)),
        "verify": loaded_and_run_by("verify", bundle, *read),
        "guard": loaded_and_run_by("guard", *read),
    }


if __name__ == "__main__":
    main()
