"""Commands that no test machine can run are at least commands: options exist, values are of their kind."""

import re
import shlex

import click
import pytest

from mbd.cli import group
from mbd.params import load_params
from tests.docs.blocks import KUBEFLOW, PAGES, PYTHON, REPOSITORY, RUN, SERVICES, UNEXECUTED, Block, blocks

TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
UNRUN = [block for page in PAGES for block in blocks(page, UNEXECUTED, SERVICES, KUBEFLOW)]
_PROGRAMS = {"cd", "curl", "docker", "docker/build-images", "dvc", "git", "grep", "kubectl", "pip", "python", "source"}


def parse(words: list[str]) -> click.Context:
    """Parse the words after `mbd` down to the last command, as the program does, and run nothing."""
    context: click.Context | None = None
    command: click.Command = group
    rest = words
    while True:
        context = command.make_context(command.name, list(rest), parent=context)
        if not isinstance(command, click.Group) or not (left := [*context._protected_args, *context.args]):
            return context
        _, found, rest = command.resolve_command(context, left)
        assert isinstance(found, click.Command)
        command = found


def commands(block: Block) -> list[list[str]]:
    """The commands of a block, those in pipes and after && each for itself."""
    parts: list[list[str]] = []
    for words in block.commands():
        parts.append([])
        for word in words:
            if word in {"|", "&&", "||", ";"}:
                parts.append([])
            else:
                parts[-1].append(word)
    return [part for part in parts if part]


def test_what_is_not_run_here_parses() -> None:
    for words in (words for block in UNRUN for words in commands(block)):
        program, *rest = words
        if program == "mbd":
            load_params(None, parse(rest).params.get("settings", ()))
        elif program == "make":
            assert {word for word in rest if "=" not in word} <= TARGETS, shlex.join(words)
        else:
            assert program in _PROGRAMS, f"what is {shlex.join(words)}?"


def test_parsing_notices_what_is_wrong() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["train", "--colour", "red"])
    with pytest.raises(click.UsageError):
        parse(["pipeline", "fly"])
    with pytest.raises(click.MissingParameter):
        parse(["publish"])
    assert parse(["pipeline", "submit", "delete", "--dry-run"]).params["dry_run"]


def test_few_commands_stay_unexecuted() -> None:
    counts = {kind: sum(len(blocks(page, kind)) for page in PAGES) for kind in (RUN, PYTHON, SERVICES, UNEXECUTED)}
    assert counts[UNEXECUTED] * 2 < counts[RUN] + counts[SERVICES], counts
