"""The README against the program: every command and option it shows exists, every link leads somewhere."""

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import click

from mbd.cli import COMMANDS, group

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
LARGEST_PICTURE = 150_000
MOST_WORDS = 1_000
COMMAND = re.compile(r"mbd ([a-z]+)((?: +(?:--?[a-z-]+|[\w./=,:{}\[\]-]+))*)")


def known(command: str) -> dict[str, set[str]]:
    """Return the options of a command, and those of the commands below it, each by its words."""
    found = group.get_command(click.Context(group), command)
    assert found is not None, f"there is no command mbd {command}"
    return dict(_options(command, found))


def _options(words: str, command: click.Command) -> Iterator[tuple[str, set[str]]]:
    yield words, {option for parameter in command.params for option in parameter.opts} | {"--help"}
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _options(f"{words} {name}", below)


def shown_options() -> dict[str, set[str]]:
    """Return the options that the documents show of each command."""
    found: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        for command, rest in COMMAND.findall(document.read_text()):
            words = [command, *rest.split()]
            there = known(command) if command in COMMANDS else {}
            name = max((n for n in accumulate(words, "{} {}".format) if n in there), key=len, default=command)
            found.setdefault(name, set()).update(re.findall(r"--[a-z-]+", rest))
    return found


def test_something_is_shown() -> None:
    assert {"features", "train", "evaluate", "predict", "pipeline run"} <= shown_options().keys()


def test_every_command_and_option_in_the_documents_exists() -> None:
    for command, options in shown_options().items():
        unknown = options - known(command.split(maxsplit=1)[0])[command]
        assert not unknown, f"mbd {command} has no {unknown}"


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert "://" in target or (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_readme_is_for_people_in_a_hurry() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) <= MOST_WORDS


def test_make_targets_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"(?:`|^)make ([a-z-]+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE))
    assert {"run", "test", "help"} <= mentioned <= targets


def test_pictures_in_the_readme_are_described_and_small() -> None:
    shown = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", (REPOSITORY / "README.md").read_text())
    assert {Path(name) for _, name in shown} == {
        path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs" / "pictures").glob("readme-*")
    }
    for description, name in shown:
        assert description
        assert (REPOSITORY / name).stat().st_size < LARGEST_PICTURE, name
