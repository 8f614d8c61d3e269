"""Schemathesis against the OpenAPI document: no failure of the server, no answer that the document does not have."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.site import Site

pytestmark = pytest.mark.services

TESTER = "schemathesis==4.32.5"
NOT_CHECKED = "positive_data_acceptance"
"""a model or modality that there is not is refused, although its name is a valid one"""


@pytest.fixture(scope="module")
def tester(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tester; it comes with a plug-in for pytest and cannot live beside our other packages."""
    folder = tmp_path_factory.mktemp("schemathesis")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", TESTER],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        pytest.skip(f"{TESTER} cannot be installed: {done.stderr[-300:]}")
    return folder / "bin" / "schemathesis"


@pytest.mark.parametrize("public", ["[]", "[store, metrics]"])
def test_every_answer_is_as_the_document_says(tester: Path, tmp_path: Path, public: str) -> None:
    site = Site.make(tmp_path, "serving.rate_per_minute=0", "serving.poll_seconds=0.2", f"serving.public={public}")
    site.golden.files("surgery")
    site.golden.certificate("surgery")
    token, _ = site.token_file.new("tester", ["submit", "read", "operate"])
    (tmp_path / "work").mkdir()
    # /events does not end
    options = ["--checks", "all", "--exclude-checks", NOT_CHECKED, "--exclude-path", "/events", "--no-color"]
    options += ["--max-examples", "25", "--seed", "1", "--phases", "examples,coverage,fuzzing"]
    with site.process() as (url, _):
        done = subprocess.run(
            [tester, "run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {token}", *options],
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
