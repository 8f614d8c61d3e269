"""A reference that was trained elsewhere: what it saw is the issuer's word, so the deletion is attested, not exact."""

from pathlib import Path

import pytest

import mbd
from mbd.errors import GateRefusedError
from mbd.files import STEP_FILE, read_json, sha256_file, to_json, write_file
from mbd.formats.deletion import DELETION, read_deletion
from mbd.formats.files import MODEL
from mbd.formats.guarantee import Guarantee
from mbd.model.checkpoint import load_model, save_model
from mbd.tensors import save_tensors
from tests.certificate.build import leakage_record, write_leakage
from tests.features.build import synthetic_set
from tests.steps.model_workspace import LOOP, ModelWorkspace
from tests.steps.test_any_model import LATE, ROWS


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    """A model, and as its reference the same weights stripped of the audio encoder, imported as never exposed."""
    workspace = ModelWorkspace(tmp_path_factory.mktemp("attested"), LATE, lambda out: synthetic_set(out, ROWS))
    workspace["reference"].rename(workspace["trained reference"])
    stripped = {n: t for n, t in load_model(workspace["model"])[1].items() if not n.startswith("encoders.audio.")}
    save_tensors(workspace["stripped.safetensors"], stripped)
    mbd.import_model(
        workspace["stripped.safetensors"],
        workspace["data"],
        ["text", "visual"],
        workspace["reference"],
        params=workspace.params,
    )
    return workspace


@pytest.fixture(scope="module")
def released(workspace: ModelWorkspace) -> Path:
    params = {**workspace.params, "deletion.method": "exact"}
    out = workspace["deleted"]
    mbd.delete(workspace["data"], workspace["model"], ["audio"], out, reference=workspace["reference"], params=params)
    workspace.attack(out)
    return out


def test_releasing_an_imported_reference_is_attested_in_every_place_where_a_kind_is_stated(
    workspace: ModelWorkspace, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guarantee = load_model(released)[0].guarantee
    assert (guarantee.kind, guarantee.epsilon) == ("attested", None)
    assert "the issuer" in guarantee.assumptions[0]
    verdict = workspace.certified(released)
    assert not [check for check in verdict.checks if check.outcome == "failed"]
    assert verdict.claims["guarantee"]["kind"] == "attested"
    page = Path("bundle/report.md").read_text()
    assert '**The issuer states that model "own" never saw audio.**' in page
    assert "byte for byte those of a model that never saw" not in page
    assert "--reproduce" not in page


def test_training_again_cannot_show_what_an_imported_model_saw(
    workspace: ModelWorkspace, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace.certified(released)
    trust, data = "build/keys/trust.json", workspace["data"]
    verdict = mbd.verify("bundle", model=released, trust=trust, offline=True, features=data, params=workspace.params)
    assert verdict.check("reproduction").outcome == "not checkable"


def test_a_certificate_never_says_exact_of_weights_whose_training_is_not_recorded(
    workspace: ModelWorkspace, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claim = Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=("It was trained without audio.",))
    folder = tmp_path / "liar"
    folder.mkdir()
    for file in released.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    step = read_json(folder / STEP_FILE)
    for name in (MODEL, DELETION):
        write_file(folder / name, to_json({**read_json(folder / name), "guarantee": claim.to_plain()}))
        step["outputs"]["files"][name] = sha256_file(folder / name)
    write_file(folder / STEP_FILE, to_json(step))
    deletion = read_deletion(folder)
    assert deletion
    write_leakage(tmp_path / "liar-leakage", leakage_record(deletion))
    with pytest.raises(GateRefusedError, match="training that can be repeated"):
        workspace.certified(folder)


def test_a_reference_that_was_trained_here_is_exact_also_beside_an_imported_model(
    workspace: ModelWorkspace, tmp_path: Path
) -> None:
    names = ["text", "audio", "visual"]
    mbd.import_model(
        workspace["model"] / "model.safetensors", workspace["data"], names, tmp_path / "model", params=workspace.params
    )
    params = {**workspace.params, "deletion.method": "exact", "deletion.ledgers": str(tmp_path / "ledgers")}
    reference = workspace["trained reference"]
    result = mbd.delete(
        workspace["data"], tmp_path / "model", ["audio"], tmp_path / "deleted", reference=reference, params=params
    )
    assert result
    assert result.record.guarantee.kind == "exact"


def test_forgetting_persons_trains_an_imported_model_here_so_what_follows_is_exact(
    workspace: ModelWorkspace, tmp_path: Path
) -> None:
    """Not even where the issuer says that no split which training read holds the person's recordings."""
    data = mbd.FeatureSet.open(workspace["data"])
    person = str(data.split("test").groups[0])
    params = {**workspace.params, "deletion.method": "exact", "training.epochs": 1}
    before = load_model(workspace["reference"])[0]
    deleted = tmp_path / "deleted"
    mbd.delete(workspace["data"], workspace["reference"], ["text"], deleted, subjects=[person], params=params)
    after = load_model(deleted)[0]
    assert not before.training_is_recorded
    assert after.training_is_recorded
    assert after.guarantee.kind == "exact"
    assert after.sha256 != before.sha256


def test_an_attested_release_stays_without_recorded_training_through_later_deletions(
    workspace: ModelWorkspace, released: Path, tmp_path: Path
) -> None:
    for method in ("surgery", "certified"):
        params = {**workspace.params, **LOOP, "deletion.method": method, "deletion.ledgers": str(tmp_path / "ledgers")}
        mbd.delete(workspace["data"], released, ["visual"], tmp_path / method, params=params)
        assert not load_model(tmp_path / method)[0].training_is_recorded
    record, tensors = load_model(tmp_path / "surgery")
    forged = record.model_copy(update={"revoked": (), "guarantee": Guarantee()})  # taken for a reference of its own
    (tmp_path / "forged").mkdir()
    save_model(tmp_path / "forged", forged, tensors)
    assert not load_model(tmp_path / "forged")[0].training_is_recorded
