"""`make demo`: the whole story, as a reader sees it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.services

DEMO = Path(__file__).parents[2] / "deploy" / "demo.py"


def test_the_demo_ends_with_a_certificate_that_audio_is_refused_by(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tmp_path.glob("build/demo/certificate.html")
    lines = done.stdout.splitlines()
    before, after = (number for number, line in enumerate(lines) if "text + audio + visual:" in line)
    assert "by release" in lines[before]
    digest = next(line for line in lines if line.startswith("VERIFIED")).split()[2].rstrip(";")
    assert f"422, audio was revoked by certificate {digest}" in lines[after]
    assert f"by release {digest[:16]}" in lines[after + 1]
    assert digest in page.read_text()
