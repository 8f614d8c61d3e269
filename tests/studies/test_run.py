"""Stages side by side: each after what it needs, none twice, and on with what is left after a failure."""

import subprocess
from pathlib import Path

import pytest

from mbd.errors import MbdError
from studies.run import Stages, log_of, read_stages, run_stages
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DVC's own
SOURCES = """\
stages:
  source:
    wdir: ..
    matrix: {letter: [a, b]}
    cmd: mkdir -p out && echo ${item.letter} > out/${item.letter}
    outs: ["out/${item.letter}"]
"""
PIPELINE = """\
stages:
  twice:
    matrix: {letter: [a, b]}
    cmd: cat out/${item.letter} out/${item.letter} > out/${item.letter}${item.letter}
    deps: ["out/${item.letter}"]
    outs: ["out/${item.letter}${item.letter}"]
  sum:
    cmd: cat out/aa out/bb wanted > out/sum
    deps: [out/aa, out/bb]
    outs: [out/sum]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["dvc", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "dvc.yaml").write_text(SOURCES)
    return tmp_path


def test_stages_run_in_order_once_and_again_only_where_something_changed(project: Path) -> None:
    stages, logs = read_stages(project), project / "logs"
    assert stages.needs["sum"] == {"twice@a", "twice@b"}
    with refused(MbdError, file=log_of("sum", logs)):
        run_stages(stages, ["sum"], jobs=2, logs=logs, project=project)
    assert "wanted" in log_of("sum", logs).read_text()

    (project / "wanted").write_text("c\n")
    assert run_stages(stages, ["sum"], jobs=2, logs=logs, project=project) == 1
    assert (project / "out" / "sum").read_text().split() == ["a", "a", "b", "b", "c"]
    assert run_stages(stages, ["sum"], jobs=2, logs=logs, project=project) == 0

    (project / "out" / "b").unlink()
    text = SOURCES.replace("echo ${item.letter}", "echo x${item.letter}")
    (project / "sources" / "dvc.yaml").write_text(text)
    assert run_stages(read_stages(project), ["twice@b"], jobs=2, logs=logs, project=project) == 2
    assert (project / "out" / "bb").read_text().split() == ["xb", "xb"]
    assert (project / "out" / "aa").read_text().split() == ["a", "a"]


def test_what_a_study_needs_is_found_through_all_levels() -> None:
    needs = {
        "table": frozenset({"cell"}),
        "cell": frozenset({"data"}),
        "data": frozenset[str](),
        "other": frozenset[str](),
    }
    stages = Stages(needs, files=dict.fromkeys(needs, "dvc.yaml"))
    assert stages.upstream(["table"]) == {"table", "cell", "data"}
    assert stages.heights() == {"data": 2, "cell": 1, "table": 0, "other": 0}
