"""The commands that `mbd` suggests work as they are printed, from the first step to the purge."""

import re
import shlex
from pathlib import Path

import pytest

from tests.command import run_mbd

SMALL = (
    *("--set", "training.epochs=2", "--set", "attacks.resamples=200", "--set", "attacks.figures=false"),
    *("--set", "evaluation.figures=false", "--set", "evaluation.missing_rates=[0.3]", "--set", "model.joint.hidden=16"),
    *("--set", "model.joint.embedding=8", "--set", "model.joint.property_dim=8"),
)
DATA = (
    *("--set", "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}"),
    *("--set", "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}"),
)


@pytest.mark.slow
def test_every_next_command_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waiting, done = [shlex.join(["features", "--out", "FEATURES", *DATA, *SMALL])], []
    while waiting:
        line = waiting.pop(0).replace("MODALITY", "audio")  # folders in capital letters are folders
        yes = ["--yes"] if line.startswith("purge --certificate") else []  # it asks before it removes
        result = run_mbd(*shlex.split(line), *yes)
        assert result.exit_code == 0, (line, result.output)
        done.append(line)
        found = re.findall(r"^next: mbd (.*)$", result.stderr, re.MULTILINE)
        waiting += [each for each in found if each not in (*done, *waiting)]
    names = [line.partition(" ")[0] for line in done]
    assert {"train", "evaluate", "delete", "attack", "keys", "certify", "publish", "verify", "purge"} <= set(names)
