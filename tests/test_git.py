"""The user's git without prompts and without settings left behind."""

from pathlib import Path

import pytest

from mbd.errors import MbdError
from mbd.git import git


def test_settings_reach_git_beside_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "test.first")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "1")
    listed = git("config", "--get-regexp", r"^test\.", settings={"test.second": "2"}).stdout
    assert listed.splitlines() == ["test.first 1", "test.second 2"]


def test_without_git_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MbdError, match="git is not installed"):
        git("--version")
