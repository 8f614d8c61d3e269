"""Names of modalities and files: one rule."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbd.errors import DataError
from mbd.records import check_names, problem_with, valid_path
from tests.refusals import refused


@pytest.mark.parametrize("name", ["audio", "Text 2", "face-landmarks", "v1.2", "声音", "çıkış", "हिन्दी", "7"])
def test_letters_and_digits_of_all_scripts_are_allowed(name: str) -> None:
    assert problem_with(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("..", "does not start"),
        (".hidden", "does not start"),
        ("_rows", "does not start"),
        ("/etc/passwd", "does not start"),
        ("a/b", "contains '/'"),
        ("a\\b", "contains"),
        ("text+visual", "contains '+'"),
        ("line\nbreak", "contains"),
        ("nul\0", "contains"),
        ("bidi\u202ee", "contains"),
        ("<script>", "does not start"),
        ("a<b", "contains '<'"),
        ("lone\ud800", "contains"),
        ("blank ", "ends with"),
        ("e\u0301", "normalization"),
        ("full", "reserved"),
        ("CON.txt", "reserved"),
        ("x" * 101, "longer"),
    ],
)
def test_other_texts_are_refused_with_the_reason(name: str, problem: str) -> None:
    assert problem in (problem_with(name) or "")
    with refused(DataError, value=repr(name)):
        check_names([name], "modality")


@given(st.text(max_size=20))
def test_a_name_is_one_visible_part_of_a_path(name: str) -> None:
    if problem_with(name) is None:
        assert PurePosixPath(name).parts == (name,)
        assert name.isprintable()
        assert name.encode()


@pytest.mark.parametrize("path", ["model.json", "splits/train/_rows.safetensors", "plots/a b.png"])
def test_relative_paths_consist_of_names(path: str) -> None:
    assert valid_path(path) == path


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".git/config", "_", "C:\\x"])
def test_paths_that_leave_their_folder_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a valid relative path"):
        valid_path(path)
