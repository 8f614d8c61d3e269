"""`mbd report` as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run_mbd
from tests.report.statements import SmallAuthority

MBD = (sys.executable, "-c", "from mbd.cli import main; main()")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> SmallAuthority:
    return SmallAuthority.make(tmp_path_factory.mktemp("authority"))


def test_a_page_has_the_same_bytes_in_every_process(authority: SmallAuthority, tmp_path: Path) -> None:
    bundle = authority.publish("certified")
    for seed in ("1", "2"):
        done = subprocess.run(
            [*MBD, "report", bundle, "--out", tmp_path / f"{seed}.html"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONHASHSEED": seed},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("nothing was verified (--store URL)\n")
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_pages_of_a_store(authority: SmallAuthority, tmp_path: Path) -> None:
    authority.publish("exact")
    done = run_mbd("report", "--store", authority.url, "--out", tmp_path / "site", "--trust", authority.trust_file)
    assert done.exit_code == 0, done.stderr
    assert f"open {tmp_path}/site/index.html" in done.stdout
    assert (tmp_path / "site" / "index.html").is_file()


def test_a_bundle_or_a_store_is_needed(tmp_path: Path) -> None:
    done = run_mbd("report", "--out", tmp_path / "x.html")
    assert done.exit_code == 2
    assert "give a BUNDLE" in done.stderr
