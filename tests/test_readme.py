"""The README against the program: every command and option it shows exists, every link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
COMMAND = re.compile(r"mbd ([a-z]+)((?: +(?:--?[a-z-]+|[\w./=,:{}\[\]-]+))*)")


def help_of(command: str) -> str:
    script = "import sys; from mbd.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, command, "--help"], capture_output=True, text=True, check=True
    ).stdout


def shown_options() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        for command, rest in COMMAND.findall(document.read_text()):
            found.setdefault(command, set()).update(re.findall(r"--[a-z-]+", rest))
    return found


def test_something_is_shown() -> None:
    assert {"features", "train", "evaluate", "predict"} <= shown_options().keys()


@pytest.mark.parametrize("command", sorted(shown_options()))
def test_every_command_and_option_in_the_documents_exists(command: str) -> None:
    text = help_of(command)
    for option in shown_options()[command]:
        assert option in text, f"mbd {command} has no {option}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_make_targets_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"(?:`|    )make ([a-z-]+)", (REPOSITORY / "README.md").read_text()))
    assert {"run", "test", "help"} <= mentioned <= targets
