"""Folders that are whole or not there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.files import file_digests, write_file
from mbd.outputs import whole_folder
from tests.digests import path_digest
from tests.refusals import refused


def fill(out: Path, text: str, step: str = "features") -> None:
    with whole_folder(out, step) as folder:
        (folder / "data").write_text(text)
        (folder / "step.json").write_text(json.dumps({"step": step}))


def test_the_folder_appears_when_it_is_done(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with whole_folder(out, "features") as folder:
        (folder / "data").write_text("x")
        assert not out.exists()
    assert (out / "data").read_text() == "x"
    assert list(out.parent.iterdir()) == [out]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out", "features"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_earlier_output_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "out", "first")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out", "features"):
        raise RuntimeError
    assert (tmp_path / "out" / "data").read_text() == "first"


def test_the_same_step_may_write_again(tmp_path: Path) -> None:
    fill(tmp_path / "out", "first")
    fill(tmp_path / "out", "second")
    assert (tmp_path / "out" / "data").read_text() == "second"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_of_someone_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with refused(UsageError, key="--out", value=tmp_path):
        fill(tmp_path, "x")
    fill(tmp_path / "model", "weights", step="train")
    with refused(UsageError, match="mbd features", key="--out", value=tmp_path / "model"):
        fill(tmp_path / "model", "x")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from mbd.outputs import whole_folder\n"
        "with whole_folder(Path(sys.argv[1]), 'features') as f:\n"
        "    (f / 'data').write_text('half'); print('ready', flush=True); time.sleep(60)\n"
    )
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", script, str(out)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        fill(out, "other")  # a writer at work is left alone …
        assert len(list(tmp_path.glob(".out.partial.*"))) == 1
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    time.sleep(0.05)
    fill(out, "again")  # … a dead one is cleaned up after
    assert (out / "data").read_text() == "again"
    assert len(list(tmp_path.iterdir())) == 1


def test_digests_leave_out_step_json_and_see_names_and_bytes(tmp_path: Path) -> None:
    fill(tmp_path / "a", "x")
    fill(tmp_path / "b", "x", step="train")
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")
    assert list(file_digests(tmp_path / "a")) == ["data"]
    (tmp_path / "b" / "data").rename(tmp_path / "b" / "date")
    assert path_digest(tmp_path / "a") != path_digest(tmp_path / "b")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "f", "one")
    write_file(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_text() == "two"
    assert len(list(tmp_path.iterdir())) == 1
