"""`mbd demo`: the whole story, as a reader sees it."""

import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.serving.worker_site import call

pytestmark = pytest.mark.services

DEMO = [sys.executable, "-c", "from mbd.cli import main; main()", "demo", "--keep"]


def test_the_demo_forgets_one_voice_then_every_voice_a_withdrawal_brings_none_back_and_it_stays_up(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(DEMO, cwd=tmp_path, stdout=PIPE, text=True) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("the server stays up"):
                break
        assert process.poll() is None, lines
        url, token = lines[-1].split("open ")[1].split(" and sign in with ")
        found = call(f"{url}/overview", token.split()[0])
        process.terminate()  # as Ctrl-C; a process started in the background of a shell ignores SIGINT
    assert process.returncode == 0
    assert found["certificates"] == {"replaced": 1, "withdrawn": 1, "verified": 1}
    assert found["requests"]["states"] == {"certified": 2}

    verdicts = [re.match("([A-Z]+).*certificate ([0-9a-f]{64})", line) for line in lines]
    assert [each[1] for each in verdicts if each] == ["REPLACED", "VERIFIED", "WITHDRAWN", "VERIFIED"]
    first, second, withdrawn, third = (each[2] for each in verdicts if each)
    assert second == withdrawn != third
    before, *answers = [line.split(": ", 1)[1] for line in lines if line.startswith("text + audio + visual:")]
    assert "by release" in before
    assert answers[0].endswith(f"by release {first[:16]}")
    assert [answer.split(":")[0] for answer in answers[1:]] == [
        f"422, audio was revoked by certificate {digest}" for digest in (second, third)
    ]
    (page,) = tmp_path.glob("build/demo/certificate.html")
    assert third in page.read_text()
