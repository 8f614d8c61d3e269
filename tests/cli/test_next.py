"""The commands that `mbd` suggests work as printed: from the first step to the purge, and from an error back."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import mbd
from mbd.cli import group
from tests.command import run_mbd

SOURCE = Path(mbd.__file__).parent

SMALL = (
    *("--set", "training.epochs=2", "--set", "attacks.resamples=200", "--set", "attacks.figures=false"),
    *("--set", "evaluation.figures=false", "--set", "evaluation.missing_rates=[0.3]", "--set", "model.joint.hidden=16"),
    *("--set", "model.joint.embedding=8", "--set", "model.joint.property_dim=8"),
)
DATA = (
    *("--set", "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}"),
    *("--set", "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}"),
)


@pytest.mark.slow
def test_every_next_command_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waiting, done = [shlex.join(["features", "--out", "FEATURES", *DATA, *SMALL])], []
    while waiting:
        line = waiting.pop(0).replace("MODALITY", "audio")  # folders in capital letters are folders
        yes = ["--yes"] if line.startswith("purge --certificate") else []  # it asks before it removes
        result = run_mbd(*shlex.split(line), *yes)
        assert result.exit_code == 0, (line, result.output)
        done.append(line)
        found = re.findall(r"^next: mbd (.*)$", result.stderr, re.MULTILINE)
        waiting += [each for each in found if each not in (*done, *waiting)]
    names = [line.partition(" ")[0] for line in done]
    assert {"train", "evaluate", "delete", "attack", "keys", "certify", "publish", "verify", "purge"} <= set(names)


WALK = (
    "features --out features",
    "train --features features --out model",
    "train --features features --without audio --out reference",
    "delete --features features --model model --modality audio --reference reference --out deleted",
    "evaluate --features features --model deleted --model reference --out evaluation",
    "attack --features features --before model --after deleted --reference reference --modality audio --out leakage",
    "keys new",
    "certify --deletion deleted --leakage leakage --evaluation evaluation --out bundle",
    "publish bundle --model deleted --store file://store --out published",
    "verify published --model deleted --store file://store --trust build/keys/trust.json",
)
EXACT = (*DATA, *SMALL, "--set", "model.backbone=lattice", "--set", "deletion.method=exact")


def run_with_hints(line: str, done: list[str]) -> None:
    """Run a command; as long as it fails, run what its hint names, of the walk the one that makes the missing file."""
    settings = () if line.startswith(("keys", "verify")) else EXACT
    while (result := run_mbd(*shlex.split(line), *settings)).exit_code:
        missing, hint = result.stderr.split("hint: ")
        named = tuple(re.findall(r"`mbd ([a-z]+)", hint))
        makers = [each for each in WALK if each.startswith(named) and each not in done]
        assert makers, result.stderr
        run_with_hints(next((each for each in makers if f" {each.split()[-1]}/" in missing), makers[0]), done)
    done.append(line)


@pytest.mark.slow
def test_hints_alone_lead_from_the_last_command_in_an_empty_folder_to_a_verified_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done: list[str] = []
    run_with_hints(WALK[-1], done)
    assert sorted(done) == sorted(WALK)


def texts(node: ast.AST) -> Iterator[str]:
    """Yield every text in a syntax tree, with `X` for what is formatted into it."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in inner.values)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def hinted_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the commands that messages of the package name between backticks, with their file."""
    for file in sorted(SOURCE.rglob("*.py")):
        for text in texts(ast.parse(file.read_text(encoding="utf-8"))):
            for line in re.findall(r"`mbd ([^`()]+)`", text):
                yield file.name, shlex.split(line.replace("…", "").replace("[", "").replace("]", ""))


def test_every_command_that_a_message_names_exists_with_its_options() -> None:
    found = list(hinted_commands())
    assert len(found) > 100
    for file, words in found:
        command: click.Command = group
        context, rest = click.Context(group), iter(words)
        while isinstance(command, click.Group) and re.fullmatch("[a-z][a-z-]+", name := next(rest, "")):
            below = command.get_command(context, name)
            assert below is not None, f"{file}: mbd {' '.join(words)} does not exist"
            command = below
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - known - {"--help"}
        assert not unknown, f"{file}: mbd {' '.join(words)}: there is no {unknown}"
