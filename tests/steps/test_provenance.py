"""Where a certificate's model was made: from the environment, or from git."""

from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.git import git
from mbd.steps.certify import provenance


def repository(folder: Path) -> str:
    """Make a repository with one commit; return the commit."""
    (folder / "file").write_text("one")
    who = {"user.name": "somebody", "user.email": "somebody@example.org"}
    for command in (["init", "-q", "."], ["add", "file"], ["commit", "-q", "-m", "first"]):
        assert git("-C", str(folder), *command, settings=who).returncode == 0
    return git("-C", str(folder), "rev-parse", "HEAD").stdout.strip()


def test_outside_of_any_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert set(provenance({}).values()) == {None}


def test_the_commit_of_the_working_folder_is_marked_once_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert provenance({})["git_commit"] == commit
    (tmp_path / "file").write_text("two")
    assert provenance({})["git_commit"] == f"{commit}-dirty"
    assert provenance({"MBD_GIT_COMMIT": "abc"})["git_commit"] == "abc"


def test_what_could_be_a_secret_or_a_sentence_is_refused_and_not_repeated() -> None:
    for value in ("two words", "x" * 300, "line\nbreak"):
        with pytest.raises(UsageError, match="environment variable") as caught:
            provenance({"MBD_RUN_ID": value})
        assert value not in str(caught.value)
