"""The step `delete`: the folder it leaves, for every method, and what it refuses."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.deletion.methods import Phases
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file, to_json
from mbd.formats.deletion import read_deletion
from mbd.formats.guarantee import Guarantee
from mbd.model.checkpoint import load_model, save_model
from mbd.model.predictor import load
from mbd.params import Params, load_params
from mbd.privacy.ledger import BudgetExhaustedError, Ledger
from mbd.steps import delete, evaluate
from mbd.tensors import open_tensors, save_tensors
from mbd.training.lattice import train_lattice
from tests.command import run_mbd
from tests.deletion.models import home_with_models
from tests.digests import path_digest
from tests.evaluation.models import tiny_model
from tests.features.build import synthetic_set
from tests.refusals import refused, refused_as_changed, refused_as_revoked

SALIENT = "deletion.surgery.cut=false"
EXACT = ("deletion.method=exact", "model.backbone=lattice", "model.lattice.components=4", "model.lattice.landmarks=8")
CERTIFIED = ("deletion.method=certified", "deletion.certified.finetune_epochs=1", "training.epochs=2")


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a joint model of it, one that never saw audio, and a lattice."""
    folder = home_with_models(tmp_path_factory.mktemp("home"))
    trained = train_lattice(FeatureSet.open(folder / "data"), load_params(None, EXACT), work=folder, progress=False)
    (folder / "lattice").mkdir()
    save_model(folder / "lattice", trained.record, trained.tensors)
    return folder


def params(*settings: str) -> Params:
    return load_params(None, settings)


def deleted(
    model_workspace: Path, out: Path, *settings: str, model: str | Path = "model", modality: str = "audio"
) -> dict[str, Any]:
    delete.run(params(*settings), model_workspace / "data", model_workspace / model, [modality], [], out)
    record: dict[str, Any] = json.loads((out / "deletion.json").read_text())
    return record


@pytest.mark.parametrize(
    ("settings", "model", "kind", "epsilon"),
    [((), "model", "empirical", None), (EXACT, "lattice", "exact", 0.0), (CERTIFIED, "model", "certified", 1.0)],
    ids=("surgery", "exact", "certified"),
)
def test_every_method_leaves_a_model_and_its_record(
    model_workspace: Path, tmp_path: Path, settings: tuple[str, ...], model: str, kind: str, epsilon: float | None
) -> None:
    out = tmp_path / "out"
    record = deleted(model_workspace, out, *settings, model=model)
    assert {p.name for p in out.iterdir()} == {
        "model.safetensors",
        "model.json",
        "deletion.json",
        "indices.safetensors",
        "step.json",
    }
    assert (record["guarantee"]["kind"], record["guarantee"]["epsilon"]) == (kind, epsilon)
    assert record["guarantee"]["assumptions"]
    assert (record["before"], record["after"]) == (
        sha256_file(model_workspace / model / "model.safetensors"),
        sha256_file(out / "model.safetensors"),
    )
    assert record["lineage"] == [record["before"]]
    assert record["indices"]["sha256"] == sha256_file(out / "indices.safetensors")
    assert record["request"] == {"modalities": ["audio"], "subjects": []}
    assert record["parameters"] == params(*settings).deletion.model_dump(mode="json")
    after = load(out)
    assert (after.guarantee.kind, after.guarantee.epsilon) == (kind, epsilon)
    assert (tuple(after.modalities), after.record.revoked) == (("text", "visual"), ("audio",))
    step = json.loads((out / "step.json").read_text())
    assert step["phases_seconds"].keys() == set(delete_phases(out))
    assert step["inputs"]["model"]["digest"] == path_digest(model_workspace / model)
    assert not any("seconds" in key for key in record)


def delete_phases(out: Path) -> list[str]:
    phases = {
        "surgery": ["cut", "saliency", "selection", "edit", "rounding"],
        "exact": ["drop"],
        "certified": ["cut", "noise", "fine-tuning"],
    }
    record = read_deletion(out)
    assert record is not None
    return phases[record.method]


@pytest.mark.parametrize("settings", [(), (SALIENT,)])
def test_the_same_deletion_gives_the_same_bytes(
    model_workspace: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    for name in ("a", "b"):
        deleted(model_workspace, tmp_path / name, *settings)
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")


def test_the_listed_positions_are_those_that_differ(model_workspace: Path, tmp_path: Path) -> None:
    record = deleted(model_workspace, tmp_path / "out", SALIENT)
    _, before = load_model(model_workspace / "model")
    _, after = load_model(tmp_path / "out")
    indices = open_tensors(tmp_path / "out" / "indices.safetensors")
    differing = {name: np.flatnonzero(before[name] != after[name]) for name in after}
    assert {name: p.tolist() for name, p in indices.items()} == {n: p.tolist() for n, p in differing.items() if len(p)}
    assert record["indices"]["by_tensor"] == {name: len(positions) for name, positions in indices.items()}
    assert record["indices"]["count"] == record["facts"]["selection"]["chosen"] > 0


@pytest.mark.parametrize("settings", [(), (SALIENT,), CERTIFIED], ids=("cut", "not cut", "certified"))
def test_a_second_deletion_continues_the_lineage(
    model_workspace: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    first = deleted(model_workspace, tmp_path / "first", *settings)
    if settings == (SALIENT,):
        settings = ()
    second = deleted(model_workspace, tmp_path / "second", *settings, model=tmp_path / "first", modality="visual")
    assert second["lineage"] == [first["before"], first["after"]]
    assert second["before"] == first["after"]
    assert second["revoked"] == ["audio", "visual"]
    assert tuple(load(tmp_path / "second").modalities) == ("text",)
    with refused_as_revoked("audio"):
        deleted(model_workspace, tmp_path / "third", *settings, model=tmp_path / "second", modality="audio")


def test_exact_deletion_of_both_is_that_of_one_after_the_other(model_workspace: Path, tmp_path: Path) -> None:
    deleted(model_workspace, tmp_path / "first", *EXACT, model="lattice")
    deleted(model_workspace, tmp_path / "second", *EXACT, model=tmp_path / "first", modality="visual")
    delete.run(
        params(*EXACT),
        model_workspace / "data",
        model_workspace / "lattice",
        ["visual", "audio"],
        [],
        tmp_path / "both",
    )
    assert load_model(tmp_path / "second")[0].sha256 == load_model(tmp_path / "both")[0].sha256


def test_subjects_are_forgotten_on_the_lattice(model_workspace: Path, tmp_path: Path) -> None:
    subject = str(FeatureSet.open(model_workspace / "data").split("train").groups[0])
    delete.run(
        params(*EXACT), model_workspace / "data", model_workspace / "lattice", ["audio"], [subject], tmp_path / "out"
    )
    record = read_deletion(tmp_path / "out")
    assert record is not None
    assert (record.request.subjects, record.revoked) == ((subject,), ())
    assert record.facts["recordings_forgotten"] > 0


def test_the_budget_of_a_lineage_is_kept_and_ends(model_workspace: Path, tmp_path: Path) -> None:
    first = deleted(model_workspace, tmp_path / "first", *CERTIFIED, "deletion.budget_limit=1.5")["budget"]
    assert (first["epsilon_before"], first["rho_before"]) == (0, 0)
    assert first["epsilon_after"] == pytest.approx(1, abs=1e-3)
    again = deleted(model_workspace, tmp_path / "again", *CERTIFIED, "deletion.budget_limit=1.5")["budget"]
    assert again["rho_after"] == pytest.approx(2 * first["rho_after"])
    with refused(BudgetExhaustedError, key="deletion.budget_limit"):
        deleted(
            model_workspace,
            tmp_path / "third",
            *CERTIFIED,
            "deletion.budget_limit=1.5",
            model=tmp_path / "first",
            modality="text",
        )
    assert not (tmp_path / "third").exists()


def test_a_reference_is_measured_against(model_workspace: Path, tmp_path: Path) -> None:
    delete.run(
        params(SALIENT),
        model_workspace / "data",
        model_workspace / "model",
        ["audio"],
        [],
        tmp_path / "out",
        model_workspace / "silent",
    )
    record = read_deletion(tmp_path / "out")
    assert record is not None
    assert record.reference is not None
    assert record.reference["after"]["outside"] > 0
    assert "reference" in json.loads((tmp_path / "out" / "step.json").read_text())["inputs"]


def test_a_certified_record_has_no_exact_distance_of_the_old_weights(model_workspace: Path, tmp_path: Path) -> None:
    delete.run(
        params(*CERTIFIED),
        model_workspace / "data",
        model_workspace / "model",
        ["audio"],
        [],
        tmp_path / "out",
        model_workspace / "silent",
    )
    record = read_deletion(tmp_path / "out")
    assert record is not None
    assert record.reference is not None
    assert "before" not in record.reference
    assert record.reference["after"]


KILLED = """
import os, signal, sys
from pathlib import Path
from mbd.params import load_params
from mbd.privacy.ledger import Ledger
from mbd.steps import delete
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "model saved":
    delete.write_file = die
else:
    Ledger.release = die
delete.run(load_params(None, sys.argv[5:]), Path(sys.argv[2]), Path(sys.argv[3]), ["audio"], [], Path(sys.argv[4]))
"""


LEDGERS = (*CERTIFIED, "deletion.ledgers=ledgers")


def kill(quick: Path, model_workspace: Path, folder: Path, moment: str) -> None:
    """Run a certified deletion in `folder` that is killed at a moment."""
    arguments = [moment, str(model_workspace / "data"), str(model_workspace / "model"), "out", *LEDGERS]
    result = subprocess.run(
        [quick / "bin" / "python", "-c", KILLED, *arguments], check=False, capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == -signal.SIGKILL, result.stderr


@pytest.fixture(scope="module")
def killed(quick: Path, model_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each moment, the folder in which a certified deletion was killed then."""
    folders = {moment: tmp_path_factory.mktemp("killed") for moment in ("model saved", "folder in place")}
    for moment, folder in folders.items():
        kill(quick, model_workspace, folder, moment)
    return folders


@pytest.fixture
def crash_site(killed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Go to what is left of a deletion that was killed at a moment; what it wrote to is returned."""

    def go(moment: str) -> Path:
        shutil.copytree(killed[moment], tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        return tmp_path / "out"

    return go


def ledger_of(model_workspace: Path) -> Ledger:
    lineage = sha256_file(model_workspace / "model" / "model.safetensors")
    return Ledger(Path("ledgers") / f"{lineage}.jsonl", lineage)


@pytest.mark.parametrize("moment", ["model saved", "folder in place"])
def test_killed_at_any_moment_nothing_is_half_written_and_the_ledger_counts_once(
    model_workspace: Path, crash_site: Callable[[str], Path], moment: str
) -> None:
    out = crash_site(moment)
    assert out.exists() == (moment == "folder in place")
    record = deleted(model_workspace, out, *LEDGERS)
    assert record["budget"]["rho_before"] == 0
    assert record["budget"]["rho_after"] == ledger_of(model_workspace).entries[0].rho
    assert load(out).record.sha256 == record["after"]
    assert [entry.event for entry in ledger_of(model_workspace).entries] == ["charge", "release"]
    assert not [p for p in out.parent.iterdir() if "partial" in p.name]


def test_a_surgery_says_that_the_cut_left_nothing_to_edit(model_workspace: Path, tmp_path: Path) -> None:
    data, model, silent = (model_workspace / name for name in ("data", "model", "silent"))
    done = delete.run(params(), data, model, ["audio"], [], tmp_path / "out", silent)
    assert done
    assert "the cut has removed all that is salient, so nothing is left to edit" in done.to_text()
    assert "no parameter that both have was edited" in done.to_text()


def test_killed_with_the_model_in_place_only_the_charge_is_settled(
    model_workspace: Path, crash_site: Callable[[str], Path]
) -> None:
    out = crash_site("folder in place")
    left = {file.name: file.read_bytes() for file in out.iterdir()}
    summary = delete.run(params(*LEDGERS), model_workspace / "data", model_workspace / "model", ["audio"], [], out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == left
    assert summary
    assert summary.settled
    assert summary.modalities == ("text", "visual")
    assert "only its charge was settled" in summary.to_text()
    charge, release = ledger_of(model_workspace).entries
    assert summary.record.budget
    assert (charge.digest, release.after) == (summary.record.budget.entry, summary.record.after)
    again = deleted(
        model_workspace, out, *LEDGERS
    )  # that deletion is done; this one draws fresh noise, and costs again
    assert again["after"] != release.after
    assert again["budget"]["rho_before"] == charge.rho


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "indices.safetensors", "deletion.json"])
def test_a_model_that_is_not_whole_is_made_again_under_the_same_charge(
    model_workspace: Path, crash_site: Callable[[str], Path], name: str
) -> None:
    out = crash_site("folder in place")
    before = read_deletion(out)
    (out / name).write_bytes((out / name).read_bytes()[:-2])
    record = deleted(model_workspace, out, *LEDGERS)
    assert before is not None
    assert record["after"] != before.after
    assert [entry.event for entry in ledger_of(model_workspace).entries] == ["charge", "release"]


def test_a_charge_is_found_again_behind_those_of_others(
    model_workspace: Path, crash_site: Callable[[str], Path]
) -> None:
    out = crash_site("model saved")
    deleted(model_workspace, out.with_name("other"), *LEDGERS, modality="visual")
    record = deleted(model_workspace, out, *LEDGERS)
    entries = ledger_of(model_workspace).entries
    assert [entry.event for entry in entries] == ["charge", "charge", "release", "release"]
    assert record["budget"]["entry"] == entries[0].digest


@pytest.mark.parametrize(
    ("settings", "model", "modalities", "subjects", "says"),
    [
        ((), "model", ["smell"], [], "no modality smell"),
        ((), "model", [], [], "no modality to delete was named"),
        ((), "model", ["text", "audio", "visual"], [], "at least one must be left"),
        ((), "lattice", ["audio"], [], "surgery is for the joint backbone, and this model is a lattice"),
        (CERTIFIED, "lattice", ["audio"], [], "certified is for the joint backbone"),
        ((), "model", ["audio"], ["speaker9"], "whole modalities, not those of single subjects"),
        (
            (SALIENT, "deletion.surgery.threshold=absolute", "deletion.surgery.saliency_threshold=1000"),
            "model",
            ["audio"],
            [],
            "no parameter has a saliency",
        ),
    ],
)
def test_wrong_requests_are_wrong_usage_and_leave_nothing(
    model_workspace: Path,
    tmp_path: Path,
    settings: tuple[str, ...],
    model: str,
    modalities: list[str],
    subjects: list[str],
    says: str,
) -> None:
    with pytest.raises(UsageError, match=says):
        delete.run(
            params(*settings), model_workspace / "data", model_workspace / model, modalities, subjects, tmp_path / "out"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_times_nothing_ends_like_any_other(
    model_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Phases, "phase", lambda _self, _name: nullcontext())
    data, model = model_workspace / "data", model_workspace / "lattice"
    result = delete.run(params(*EXACT), data, model, ["audio"], [], tmp_path / "out")
    assert result is not None
    assert result.seconds == {}
    assert "seconds" not in result.to_text()


def test_a_reference_for_persons_is_refused_before_any_data_is_read(model_workspace: Path, tmp_path: Path) -> None:
    model = model_workspace / "lattice"
    with pytest.raises(UsageError, match="not for single subjects") as error:
        delete.run(params(*EXACT), tmp_path / "no data", model, ["audio"], ["speaker9"], tmp_path / "out", model)
    assert error.value.key == "--reference"


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (("features.seed=5",), "the model was made from other data"),
        (("features.source.synthetic.dims={text: 12, audio: 7, visual: 8}",), "audio with 6 columns"),
        (("features.source.synthetic.classes=3",), "made for regression"),
    ],
)
def test_data_of_another_model_is_refused(
    model_workspace: Path, tmp_path: Path, features: tuple[str, ...], says: str
) -> None:
    other = synthetic_set(tmp_path / "other", *features)
    with pytest.raises(DataError, match=says):
        delete.run(params(), other, model_workspace / "model", ["audio"], [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_calibration_rows_serve_as_well(model_workspace: Path, tmp_path: Path) -> None:
    rows = "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 32}"
    other = synthetic_set(tmp_path / "other", rows)
    printed = delete.run(params(), other, model_workspace / "model", ["audio"], [], tmp_path / "out")
    assert printed
    assert printed.record.facts["calibration"]["rows"] == 32


def test_a_calibration_file_that_changed_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    data = shutil.copytree(model_workspace / "data", tmp_path / "data")
    file = data / "splits" / "calibration" / "text.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with refused_as_changed(file):
        delete.run(params(), data, model_workspace / "model", ["audio"], [], tmp_path / "out")


def test_no_calibration_split_is_refused(tmp_path: Path) -> None:
    data = synthetic_set(
        tmp_path / "data",
        "features.calibration.size=0",
        "features.source.synthetic.rows={train: 160, valid: 48, test: 64}",
    )
    model = tiny_model(data, tmp_path / "model")
    with pytest.raises(DataError, match="there is no calibration split"):
        delete.run(params(), data, model, ["audio"], [], tmp_path / "out")


@pytest.mark.parametrize(("what", "split"), [("id", "train"), ("id", "test"), ("group", "train"), ("group", "test")])
def test_calibration_rows_in_train_or_test_are_refused(
    model_workspace: Path, tmp_path: Path, what: str, split: str
) -> None:
    """A FeatureSet whose digests are right and whose splits are not: a model of it trains, but is not operated on."""
    data = shutil.copytree(model_workspace / "data", tmp_path / "data")
    manifest = json.loads((data / "manifest.json").read_text())
    own, other = (data / "splits" / name / "_rows.safetensors" for name in ("calibration", split))
    rows = {name: np.array(value) for name, value in open_tensors(own).items()}
    stolen = open_tensors(other)[what][0]
    width = max(rows[what].shape[1], len(stolen))
    rows[what] = np.pad(rows[what], ((0, 0), (0, width - rows[what].shape[1])))
    rows[what][3] = np.pad(stolen, (0, width - len(stolen)))
    own.unlink()
    digest = save_tensors(own, rows)
    manifest["splits"]["calibration"]["files"]["splits/calibration/_rows.safetensors"] = digest
    (data / "manifest.json").write_text(to_json(manifest))
    model = tiny_model(data, tmp_path / "model")
    with refused(DataError, match=f"with {split}", key=what):
        delete.run(params(), data, model, ["audio"], [], tmp_path / "out")


def test_a_record_of_another_deletion_is_refused(model_workspace: Path, tmp_path: Path) -> None:
    deleted(model_workspace, tmp_path / "one")
    deleted(model_workspace, tmp_path / "two", modality="visual")
    shutil.copy(tmp_path / "two" / "deletion.json", tmp_path / "one" / "deletion.json")
    with pytest.raises(DataError, match="belongs to another model"):
        deleted(model_workspace, tmp_path / "out", model=tmp_path / "one", modality="text")
    (tmp_path / "one" / "deletion.json").write_text('{"format": "x"}')
    with refused(DataError, key="format", file=tmp_path / "one" / "deletion.json"):
        deleted(model_workspace, tmp_path / "out", model=tmp_path / "one", modality="text")


def test_a_record_cannot_claim_what_was_not_proven() -> None:
    with pytest.raises(ValueError, match="of kind empirical has no"):
        Guarantee(kind="empirical", epsilon=1.0, delta=1e-5, assumptions=("a",))
    for kind, epsilon, delta, assumptions in (("certified", 1.0, 1e-5, ()), ("exact", None, None, ("a",))):
        with pytest.raises(ValueError, match="needs"):
            Guarantee(kind=kind, epsilon=epsilon, delta=delta, assumptions=assumptions)


@pytest.mark.parametrize("settings", [(), (SALIENT,)], ids=("cut", "not cut"))
def test_what_comes_out_can_be_evaluated(model_workspace: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    deleted(model_workspace, tmp_path / "out", *settings)
    metrics = evaluate.run(
        load_params(None, ["evaluation.figures=false"]),
        model_workspace / "data",
        [tmp_path / "out"],
        tmp_path / "evaluation",
    ).metrics
    assert metrics["modalities"] == ["text", "visual"]


def test_the_command_prints_what_it_did(model_workspace: Path, tmp_path: Path) -> None:
    arguments = [
        "delete",
        "--features",
        model_workspace / "data",
        "--model",
        model_workspace / "model",
        "--modality",
        "audio",
    ]
    options = ["--reference", model_workspace / "silent", "--out", tmp_path / "out", "--set", SALIENT]
    result = CliRunner().invoke(group, [str(a) for a in (*arguments, *options)], catch_exceptions=False)
    assert result.exit_code == 0
    cut = CliRunner().invoke(group, [*map(str, arguments), "--out", str(tmp_path / "cut")], catch_exceptions=False)
    assert "cut out: 18 tensors, and input columns of 6 others" in cut.output
    for part in (
        "deleted: audio, by the method surgery; left: text, visual",
        "guarantee: empirical (nothing is proven",
        "the gate will refuse it",
        "distance to the reference",
        "saliency",
        f"written to {tmp_path / 'out'}",
    ):
        assert part in result.output


def test_wrong_usage_ends_with_2_and_bad_data_with_5(model_workspace: Path, tmp_path: Path) -> None:
    for modality, data, code in (("smell", model_workspace / "data", 2), ("audio", tmp_path, 5)):
        given = ("--features", data, "--model", model_workspace / "model", "--modality", modality)
        result = run_mbd("delete", *given, "--out", tmp_path / "out")
        assert result.exit_code == code, result.stderr
        assert "Traceback" not in result.stderr
