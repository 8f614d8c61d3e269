"""What runs inside a Kubeflow task: verified artifacts in, a step, verified artifacts out."""

import shutil
from pathlib import Path

import pytest

from mbd.errors import ExitCode
from mbd.files import file_digests, read_json, sha256_file, to_json, write_file
from mbd.formats.statement import DeletionStatement
from mbd.history.replay import read_history
from mbd.kubeflow import tasks
from mbd.kubeflow.common import write_params, write_resolved
from mbd.outputs import step_run
from mbd.params import load_params, to_yaml
from mbd.steps import verify
from mbd.storage import open_store
from mbd.trust.trust_file import read_trust
from mbd.verifier.bundle import Bundle
from tests.features.media.build import tone, write_table, write_text_encoder, write_wav
from tests.kubeflow.workspace import ArtifactWorkspace, PlainArtifact


def exit_code(caught: pytest.ExceptionInfo[SystemExit]) -> ExitCode:
    return ExitCode(int(str(caught.value.code)))


def test_every_output_is_what_its_step_json_lists(workspace: ArtifactWorkspace) -> None:
    for name in ("model", "reference", "deleted", "evaluation", "leakage", "certificate", "published"):
        folder = workspace.artifact(name).folder
        assert read_json(folder / "step.json")["outputs"]["files"] == file_digests(folder), name


def test_what_a_person_looks_for_is_in_the_metadata(workspace: ArtifactWorkspace) -> None:
    deleted, leakage = workspace.artifact("deleted"), workspace.artifact("leakage")
    assert deleted.metadata == {"sha256": sha256_file(deleted.folder / "model.safetensors"), "guarantee": "empirical"}
    assert leakage.metadata["decision"] == "passed"
    assert workspace.artifact("metrics").metadata["leaks"] == 0.0
    assert all(isinstance(value, float) for value in workspace.artifact("metrics").metadata.values())
    published = workspace.artifact("published")
    assert published.metadata["certificate"] == sha256_file(published.folder / "certificate.json")
    assert workspace.artifact("page").folder.read_text().startswith("# Modality Deletion Certificate")


def test_the_data_itself_is_no_artifact(workspace: ArtifactWorkspace) -> None:
    assert workspace.artifact("data").folder.stat().st_size < 1000


def test_the_published_certificate_verifies_and_names_its_run_and_request(workspace: ArtifactWorkspace) -> None:
    deleted = workspace.artifact("deleted").folder
    params = workspace.values()
    bundle, trust = workspace.artifact("published").path, Path(params.certificate.trust)
    verdict = verify.run(params, bundle, model=deleted, trust=trust, store=params.store.url)
    assert verdict.verified, verdict.problems
    statement = Bundle(workspace.artifact("published").folder).statement
    assert isinstance(statement, DeletionStatement)
    assert statement.predicate.lineage.run_id == "run-42"
    assert statement.predicate.request.reference == "ticket-7"


def test_an_input_that_was_changed_on_its_way_is_refused(
    workspace: ArtifactWorkspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(workspace.artifact("model").folder, tmp_path / "model")
    (tmp_path / "model" / "metrics.json").write_text("{}")
    changed, out = PlainArtifact(str(tmp_path / "model")), PlainArtifact(str(tmp_path / "deleted"))
    with pytest.raises(SystemExit) as caught:
        tasks.delete(
            workspace.params(), workspace.artifact("data"), changed, workspace.artifact("reference"), ["audio"], [], out
        )
    assert exit_code(caught) == ExitCode.BAD_DATA
    assert "not what the step wrote" in capfd.readouterr().err
    assert not out.folder.exists()


def test_a_folder_that_no_step_wrote_is_refused(workspace: ArtifactWorkspace, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(SystemExit) as caught:
        tasks.publish(
            workspace.params(),
            PlainArtifact(str(tmp_path / "model")),
            workspace.artifact("deleted"),
            *_nowhere(tmp_path),
        )
    assert exit_code(caught) == ExitCode.BAD_DATA


def test_an_artifact_whose_objects_were_removed_is_an_error_and_no_empty_model(
    workspace: ArtifactWorkspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path / "missing", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(SystemExit) as caught:
            tasks.publish(
                workspace.params(),
                workspace.artifact("certificate"),
                PlainArtifact(str(folder)),
                *_nowhere(tmp_path),
            )
        assert exit_code(caught) == ExitCode.BAD_DATA
        assert "removed from the pipeline root" in capfd.readouterr().err


def _nowhere(folder: Path) -> tuple[PlainArtifact, PlainArtifact]:
    return PlainArtifact(str(folder / "published")), PlainArtifact(str(folder / "page"))


def test_a_refusal_is_on_record_in_attack_and_stops_the_run_in_certify(
    workspace: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    leakage = workspace.artifact("leakage-uncut")
    assert leakage.metadata["decision"] == "refused"
    assert "**Refused: audio may not be gone.**" in workspace.artifact("page-uncut").folder.read_text()
    with pytest.raises(SystemExit) as caught:
        workspace.certify("-uncut")
    assert exit_code(caught) == ExitCode.REFUSED
    assert "gate" in capfd.readouterr().err
    assert not workspace.artifact("certificate-uncut").folder.exists()


def test_wrong_parameters_end_the_first_task_as_on_the_command_line(tmp_path: Path) -> None:
    written, data, metrics = (PlainArtifact(str(tmp_path / name)) for name in ("resolved", "data", "metrics"))
    with pytest.raises(SystemExit) as caught:
        tasks.features("model: {backbone: tower}", written, data, metrics)
    assert exit_code(caught) == ExitCode.USAGE
    with pytest.raises(SystemExit) as caught:
        tasks.features("", written, data, metrics, overrides=["training.colour=red"])
    assert exit_code(caught) == ExitCode.USAGE
    assert not list(tmp_path.iterdir())


def test_all_parameters_are_in_one_artifact_with_the_arguments_of_the_run_on_top(tmp_path: Path) -> None:
    written, text = PlainArtifact(str(tmp_path / "parameters")), write_params(load_params(None, ["training.epochs=3"]))
    write_resolved(written, text, "voices", "certified", 0.5, ["training.seed=7", "deletion.epsilon=2"])
    chosen = ["certificate.model=voices", "deletion.method=certified", "deletion.epsilon=0.5", "training.seed=7"]
    assert load_params(written.folder) == load_params(None, ["training.epochs=3", *chosen])
    assert written.folder.read_text() == to_yaml(
        load_params(written.folder)
    )  # nothing depends on another image's defaults
    assert written.metadata["model"] == "voices"


def test_only_raw_media_are_extracted_side_by_side(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        tasks.extract("", PlainArtifact(str(tmp_path / "resolved")), 0, 2)
    assert exit_code(caught) == ExitCode.USAGE
    assert "platform.extraction_tasks" in capfd.readouterr().err


def test_media_that_three_tasks_have_extracted_are_the_bytes_of_one(tmp_path: Path) -> None:
    write_text_encoder(tmp_path / "text")
    rows = []
    for number, split in enumerate(["train", "test", "valid"] * 8):
        sound = write_wav(tmp_path / f"{number}.wav", tone(120 + 20 * number, 0.3)).name
        row = {"id": f"clip{number}_0", "audio": sound, "transcript": "the film was " + "good " * number}
        rows.append({**row, "label": str(number % 7 - 3), "split": split})
    own = [f"path={write_table(tmp_path / 'table.csv', rows)}", f"media.text_encoder={tmp_path / 'text'}"]
    settings = ["features.calibration.size=0", *(f"features.source.{each}" for each in ["kind=media", *own])]
    made: list[object] = []
    for shards in (0, 3):
        state = tmp_path / f"state-{shards}"
        named = "platform.state_claim=state", f"platform.state_path={state}"
        text = write_params(load_params(None, [*settings, *named]))
        resolved, data, metrics = (PlainArtifact(str(tmp_path / f"{name}-{shards}")) for name in "rdm")
        for shard in range(shards):
            before = {*state.rglob("*")}
            tasks.extract(text, resolved, shard, shards)
            assert {*state.rglob("*")} > before
        filled = {*state.rglob("*")}
        tasks.features(text, resolved, data, metrics)
        assert shards == 0 or {*state.rglob("*")} == filled  # nothing was left to do
        made.append(data.metadata["digest"])
    assert made[0] == made[1]


def test_single_subjects_are_not_attacked_and_certify_knows(workspace: ArtifactWorkspace, tmp_path: Path) -> None:
    leakage, page = PlainArtifact(str(tmp_path / "leakage")), PlainArtifact(str(tmp_path / "page"))
    nothing = PlainArtifact(str(tmp_path / "nothing"))
    tasks.attack(
        workspace.params(),
        workspace.artifact("data"),
        ["audio"],
        leakage,
        nothing,
        page,
        before=nothing,
        after=nothing,
        reference=nothing,
        subjects=["speaker"],
    )
    assert leakage.metadata["decision"] == "not attacked"
    assert Path(page.path).read_text() == tasks.NOT_ATTACKED
    workspace.artifacts["not-attacked"] = leakage
    with pytest.raises(SystemExit) as caught:  # this deletion was one of a whole modality
        workspace.certify(leakage="not-attacked")
    assert exit_code(caught) == ExitCode.USAGE


def test_what_is_published_is_fetched_attacked_again_and_confirmed(
    workspace: ArtifactWorkspace, tmp_path: Path
) -> None:
    model, leakage = PlainArtifact(str(tmp_path / "model")), PlainArtifact(str(tmp_path / "leakage"))
    revoked, certificate = tasks.published(workspace.params(), "audio", model)
    assert revoked == ["audio"]
    assert certificate == workspace.artifact("published").metadata["certificate"] == model.metadata["certificate"]
    others, reference = (
        (PlainArtifact(str(tmp_path / "metrics")), PlainArtifact(str(tmp_path / "page"))),
        workspace.artifact("reference"),
    )
    tasks.attack(
        *(workspace.params(), workspace.artifact("data"), revoked, leakage, *others),
        before=None,
        after=model,
        reference=reference,
    )
    record = read_json(leakage.folder / "leakage.json")
    assert set(record["models"]) == {"after", "reference"}
    assert record["decision"] == "passed"
    tasks.reaudit(workspace.params("certificate.reaudit_days=300"), certificate, leakage, "run-43")
    trust = read_trust(workspace.folder / "keys" / "trust.json")
    history = read_history(open_store(f"file://{workspace.folder}/store"), trust)
    assert [(one.effect, one.run_id) for one in history.about(certificate)] == [("passed", "run-43")]


def test_a_refused_audit_refutes_the_certificate_and_fails_the_run(
    workspace: ArtifactWorkspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(workspace.folder / "store", tmp_path / "store")  # other tests rely on the certificate
    params, certificate = (
        workspace.params(f"store.url=file://{tmp_path}/store"),
        workspace.artifact("published").metadata,
    )
    record = read_json(workspace.artifact("leakage").folder / "leakage.json")
    with step_run("attack", tmp_path / "leakage", {}) as step:
        write_file(
            step.folder / "leakage.json", to_json({**record, "decision": "refused", "reasons": ["it leaks now"]})
        )
    with pytest.raises(SystemExit) as caught:
        tasks.reaudit(params, certificate["certificate"], PlainArtifact(str(tmp_path / "leakage")))
    assert exit_code(caught) == ExitCode.REFUSED
    assert f"refutes certificate {certificate['certificate']}: it leaks now" in capfd.readouterr().err
    place = f"file://{tmp_path}/store/certificates/{certificate['certificate']}"
    loaded = workspace.values(f"store.url=file://{tmp_path}/store")
    assert not verify.run(loaded, place, trust=Path(loaded.certificate.trust)).verified


def test_a_purge_that_was_not_requested_says_so(workspace: ArtifactWorkspace, tmp_path: Path) -> None:
    proof = PlainArtifact(str(tmp_path / "proof"))
    given = workspace.artifact("published"), workspace.artifact("deleted")
    tasks.purge(workspace.params(), *given, proof, requested=False)
    assert proof.metadata["claim"] == "not requested"
    assert (proof.folder / "report.md").read_text() == tasks.NOT_PURGED
    tasks.require_purged(proof)


def test_purge_leaves_no_copy_of_the_old_weights(workspace: ArtifactWorkspace, tmp_path: Path) -> None:
    shutil.copytree(workspace.folder / "store", tmp_path / "store")
    shutil.copytree(workspace.artifact("model").folder, "build/model")
    own = f"store.url=file://{tmp_path}/store", f"purge.tombstones={tmp_path}/tombstones"
    proof = PlainArtifact(str(tmp_path / "proof"))
    tasks.purge(workspace.params(*own), workspace.artifact("published"), workspace.artifact("deleted"), proof)
    assert not Path("build/model/model.safetensors").exists()
    assert proof.metadata["claim"] != "none"
    assert (proof.folder / "purge.json").stat().st_mode & 0o077 == 0
