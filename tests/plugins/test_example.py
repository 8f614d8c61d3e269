"""A package adds a source, a backbone, a deletion method, an attack and a store, and no line of ours changes.

The package in `example/` is installed by pip into a folder of its own; the commands run with it on their path.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mbd.errors import ExitCode

EXAMPLE = Path(__file__).parent / "example"
REPOSITORY = Path(__file__).parents[2]
FAST = {"resamples": 100, "relearn_rows": [32], "figures": False}
PARAMS = {
    "features": {"source": {"kind": "sheet", "path": "clips.sheet", "options": {"delimiter": ";"}}},
    "model": {"backbone": "additive", "options": {"strength": 2.0}},
    "deletion": {"method": "retrain"},
    "attacks": {**FAST, "also": {"neighbours": {"votes": 3}}},
    "evaluation": {"figures": False},
    "store": {"url": "share://lab/certificates"},
}
RUN_ALL = """
import json, sys
from mbd.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["mbd", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
CHAIN = [
    ["features", "--out", "features"],
    ["train", "--features", "features", "--out", "model"],
    ["train", "--features", "features", "--without", "audio", "--out", "reference"],
    ["delete", "--features", "features", "--model", "model", "--modality", "audio", "--out", "deleted"],
    [
        *("attack", "--features", "features", "--before", "model", "--after", "deleted"),
        *("--reference", "reference", "--modality", "audio", "--out", "attacks"),
    ],
    ["evaluate", "--features", "features", "--model", "deleted", "--out", "evaluation"],
    ["keys", "new"],
    ["certify", "--deletion", "deleted", "--leakage", "attacks", "--evaluation", "evaluation", "--out", "bundle"],
    ["publish", "bundle", "--model", "deleted", "--out", "published"],
]


def write_sheet(path: Path) -> None:
    """Write small data: labels that both modalities show, and something of its own in each."""
    draw = np.random.default_rng(7)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(["id", "group", "split", "label", *(f"{m}.{k}" for m in ("text", "audio") for k in range(4))])
        for split, count in (("train", 120), ("valid", 40), ("test", 120), ("calibration", 20)):
            for n in range(count):
                label = float(np.clip(draw.normal(), -3, 3))
                cells = (label * np.ones(8) + draw.normal(size=8)).round(4)
                writer.writerow([f"{split}_{n}", f"{split}-speaker-{n // 3}", split, round(label, 4), *cells])


def mbd(quick: Path, folder: Path, path: Path | None, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands one after the other, with the packages in `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path or ""), "SHARES": str(folder / "mounted")}
    words = [f"{quick}/bin/python", "-c", RUN_ALL, json.dumps(commands)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package was installed into."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    source = tmp_path_factory.mktemp("source") / "example"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)  # a build leaves files beside the source
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, installed: Path, quick: Path) -> Path:
    """A folder in which the whole chain has run."""
    folder = tmp_path_factory.mktemp("workspace")
    write_sheet(folder / "clips.sheet")
    (folder / "params.yaml").write_text(json.dumps(PARAMS))
    done = mbd(quick, folder, installed, *CHAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def test_data_are_read_by_the_source_of_the_package(workspace: Path) -> None:
    manifest = read(workspace / "features" / "manifest.json")
    assert manifest["provenance"]["source"] == "sheet"
    assert manifest["modalities"] == {"text": 4, "audio": 4}


def test_the_model_and_its_deletion_are_those_of_the_package(workspace: Path) -> None:
    model, deletion = read(workspace / "model" / "model.json"), read(workspace / "deleted" / "deletion.json")
    assert (model["backbone"], model["spec"]["strength"]) == ("additive", 2.0)
    assert (deletion["method"], deletion["guarantee"]["kind"]) == ("retrain", "exact")
    reference = read(workspace / "reference" / "model.json")
    assert deletion["after"] == reference["sha256"]


def test_the_attack_of_the_package_is_in_the_evidence_and_in_the_certificate(workspace: Path) -> None:
    leakage = read(workspace / "attacks" / "leakage.json")
    found = [attack for attack in leakage["attacks"] if attack["id"].startswith("neighbours.")]
    assert {(attack["id"], attack["decision"]) for attack in found} == {("neighbours.accuracy_fed", "passed")}
    assert [attack["variant"] for attack in found] == ["as released", "int8", "pruned"]
    assert leakage["suite"]["added"]["neighbours"]["package"] == "mbd-example 1.0"
    published = read(workspace / "bundle" / "leakage.json")
    assert "neighbours.accuracy_fed" in {attack["id"] for attack in published["attacks"]}
    assert "neighbours" in (workspace / "bundle" / "report.md").read_text()


def test_the_certificate_is_in_the_store_of_the_package(workspace: Path, installed: Path, quick: Path) -> None:
    assert any((workspace / "mounted" / "lab" / "certificates").rglob("certificate.json"))
    trust = str(workspace / "build" / "keys" / "trust.json")
    words = ["verify", "share://lab/certificates", "--model", "deleted", "--trust", trust]
    done = mbd(quick, workspace, installed, words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VERIFIED")


def test_verification_needs_no_code_of_the_package(workspace: Path, tmp_path: Path, quick: Path) -> None:
    store = f"file://{workspace}/mounted/lab/certificates"
    trust = str(workspace / "build" / "keys" / "trust.json")
    model = str(workspace / "deleted")
    done = mbd(quick, tmp_path, None, ["verify", store, "--model", model, "--trust", trust, "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {check["name"]: check["outcome"] for check in json.loads(done.stdout)["checks"]}
    assert outcomes["input shapes"] == "passed"  # they are the shapes of the reference
    assert outcomes["modality removed"] == "passed"


def test_a_built_in_method_works_on_a_backbone_that_asks_for_it(workspace: Path, installed: Path, quick: Path) -> None:
    words = ["delete", "--features", "features", "--model", "model", "--modality", "audio", "--out", "dropped"]
    done = mbd(quick, workspace, installed, [*words, "--set", "deletion.method=exact"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        read(workspace / "dropped" / "model.json")["sha256"] == read(workspace / "reference" / "model.json")["sha256"]
    )


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("features.source.options.quote=x", "features.source.options.quote"),
        ("model.options.strength=-1", "model.options.strength"),
        ("attacks.also.neighbours.votes=0", "attacks.also.neighbours.votes"),
        ("deletion.options.x=1", "deletion.options"),
        ("features.source.kind=shet", "features.source.kind"),
    ],
)
def test_wrong_options_are_refused_with_their_key(
    workspace: Path, installed: Path, setting: str, key: str, quick: Path
) -> None:
    done = mbd(quick, workspace, installed, ["params", "--set", setting])
    assert done.returncode == ExitCode.USAGE
    assert f"key: {key}\n" in done.stderr


def test_parameters_that_name_a_package_say_what_is_missing_without_it(workspace: Path, quick: Path) -> None:
    done = mbd(quick, workspace, None, ["params"])
    assert done.returncode == ExitCode.USAGE
    assert "there is no source named 'sheet'" in done.stderr
    assert "params.yaml" in done.stderr


def test_the_handbook_names_every_file_of_the_package() -> None:
    text = (REPOSITORY / "docs" / "extending.md").read_text()
    assert all(f"`{file.name}`" in text for file in EXAMPLE.rglob("*.*") if file.name != "__init__.py")
