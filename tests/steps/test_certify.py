"""The step `certify`: the bundle of every kind of deletion, what it hides and refuses, and where it was made."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mbd.certificate.verification import from_folder, verify_bundle
from mbd.errors import DataError, ExitCode, GateRefusedError, MbdError, UsageError
from mbd.files import read_json, sha256_file, to_json
from mbd.formats.deletion import DeletionRecord, read_deletion
from mbd.formats.leakage import LeakageRecord
from mbd.formats.statement import DeletionStatement, parse_payload
from mbd.git import git
from mbd.steps import certify, delete
from mbd.steps.certify import provenance
from mbd.trust.commitments import read_private
from mbd.trust.envelope import Envelope
from mbd.trust.trust_file import read_trust
from mbd.verifier.bundle import Bundle
from mbd.verifier.reader import check_signatures
from tests.certificate.build import (
    ISSUED,
    KINDS,
    ModelWorkspace,
    leakage_record,
    make_home,
    weights_of,
    write_leakage,
)
from tests.digests import path_digest
from tests.refusals import refused

BUNDLE = {"certificate.json", "model.json", "indices.safetensors", "leakage.json", "report.md", "step.json"}
PUBLIC = ("certificate.json", "model.json", "indices.safetensors", "leakage.json", "report.md")


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


def deletion_record(model_workspace: ModelWorkspace, kind: str) -> DeletionRecord:
    record = read_deletion(model_workspace.deletion(kind))
    assert record is not None
    return record


def public_text(bundle: Path) -> str:
    """Return everything a stranger gets, the signed content too."""
    signed = Envelope.parse((bundle / "certificate.json").read_bytes()).content
    files = [bundle / name for name in PUBLIC if (bundle / name).exists()]
    return b"\n".join([signed, *(file.read_bytes() for file in files)]).decode("utf-8", errors="replace")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_deletion_gets_a_bundle_that_verifies(
    model_workspace: ModelWorkspace, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "bundle"
    done = model_workspace.certify(kind, out)
    assert {file.name for file in out.iterdir()} == BUNDLE - ({"leakage.json"} if kind == "subjects" else set())
    bundle = Bundle(out)
    assert (bundle.digest, bundle.statement) == (done.certificate, done.statement)
    for name, digest in done.statement.digests.items():
        folder = model_workspace.deletion(kind) if name == "model.safetensors" else out
        assert sha256_file(folder / name) == digest
    trust = read_trust(model_workspace.folder / "keys" / "trust.json")
    verdict = verify_bundle(from_folder(out, model_workspace.deletion(kind)), trust, unpublished=True)
    assert verdict.genuine, verdict.problems


@pytest.mark.parametrize(
    ("kind", "guarantee", "edit", "hides"),
    [
        ("surgery", "empirical", "none", False),
        ("certified", "certified", "all", True),
        ("exact", "exact", "none", True),
        ("subjects", "exact", "none", True),
    ],
)
def test_a_certificate_has_old_digests_only_if_it_guarantees_nothing_about_them(
    model_workspace: ModelWorkspace, tmp_path: Path, kind: str, guarantee: str, edit: str, hides: bool
) -> None:
    done = model_workspace.certify(kind, tmp_path / "bundle")
    predicate, record = done.statement.predicate, deletion_record(model_workspace, kind)
    assert (predicate.guarantee.kind, predicate.edit.kind) == (guarantee, edit)
    text = public_text(tmp_path / "bundle")
    for secret in (record.before, record.data["digest"]):
        assert (secret in text) != hides
    if not hides:
        assert done.private is None
        return
    assert done.private
    private = read_private(done.private)
    assert private.certificate == done.certificate
    opened = {opening.value: opening.commitment for opening in private.openings}
    assert predicate.lineage.before.commitment == opened[record.before]
    assert predicate.lineage.data.commitment == opened[record.data["digest"]]
    assert not any(opening.salt in text for opening in private.openings)


def test_subjects_are_committed_to_and_named_nowhere(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    done = model_workspace.certify("subjects", tmp_path / "bundle")
    deleted = done.statement.predicate.deleted
    assert done.private
    openings = read_private(done.private).openings
    assert deleted.scope == "subjects"
    assert deleted.subjects == tuple(
        o.commitment for o in openings if (o.kind, o.value) == ("subject", model_workspace.subject())
    )
    assert model_workspace.subject() not in public_text(tmp_path / "bundle").replace(model_workspace.folder.name, "")
    assert done.statement.predicate.evidence.audit is None


def test_published_parameters_name_no_path_of_this_machine(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    for kind in KINDS:
        model_workspace.certify(kind, tmp_path / kind)
        assert str(model_workspace.folder) not in public_text(tmp_path / kind)


def test_a_certificate_has_time_request_and_environment(
    model_workspace: ModelWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = {
        "MBD_DVC_REVISION": "v7",
        "MBD_GIT_COMMIT": "c" * 40,
        "MBD_IMAGE_DIGEST": "sha256:" + "d" * 64,
        "MBD_RUN_ID": "run-1",
    }
    for name, value in output.items():
        monkeypatch.setenv(name, value)
    request = tmp_path / "request.json"
    request.write_text('{"reference": "REQ-12", "received": "2026-02-20T08:00:00Z"}')
    predicate = model_workspace.certify(
        "surgery",
        tmp_path / "bundle",
        "certificate.reaudit_days=30",
        "certificate.model=mood",
        clock=lambda: ISSUED,
        request=request,
        supersedes="f" * 64,
    ).statement.predicate
    assert (predicate.issued, predicate.reaudit_by) == (ISSUED, ISSUED + timedelta(days=30))
    assert (predicate.model, predicate.supersedes) == ("mood", "f" * 64)
    assert predicate.request.reference == "REQ-12"
    assert predicate.request.received == datetime(2026, 2, 20, 8, tzinfo=UTC)
    lineage = predicate.lineage
    assert (lineage.dvc_revision, lineage.git_commit, lineage.image_digest, lineage.run_id) == tuple(output.values())
    (environment,) = predicate.environment
    assert set(environment.steps) == {"delete", "attack", "evaluate", "certify"}
    assert "numpy" in environment.versions and "platform" not in environment.versions


def test_a_request_with_a_name_in_it_is_refused(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    for key, content in (("reference", {"reference": "Jane Doe"}), ("name", {"reference": "REQ-1", "name": "Jane"})):
        request.write_text(json.dumps(content))
        with refused(DataError, key=key, file=request):
            model_workspace.certify("surgery", tmp_path / "bundle", request=request)
    assert not (tmp_path / "bundle").exists()


def test_an_environment_variable_that_is_no_name_is_refused(
    model_workspace: ModelWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MBD_RUN_ID", "a secret sentence")
    with refused(UsageError, key="MBD_RUN_ID") as caught:
        model_workspace.certify("surgery", tmp_path / "bundle")
    assert "secret sentence" not in str(caught.value)


def test_a_certificate_mentions_few_calibration_rows(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    calibration = model_workspace.certify("surgery", tmp_path / "bundle").statement.predicate.calibration
    assert calibration and calibration.note
    assert calibration.used == 64
    assert "2,000" in calibration.note
    assert calibration.note in (tmp_path / "bundle" / "report.md").read_text()


def test_the_signatures_are_those_of_all_signers(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    done = model_workspace.certify("surgery", tmp_path / "bundle")
    trust = read_trust(model_workspace.folder / "keys" / "trust.json")
    envelope = Envelope.parse((tmp_path / "bundle" / "certificate.json").read_bytes())
    assert isinstance(parse_payload(envelope.content), DeletionStatement)
    issued = done.statement.predicate.issued
    assert all(check.outcome == "passed" for check in check_signatures(envelope, trust, issued, None, issued))


def refusal_of(model_workspace: ModelWorkspace, tmp_path: Path, **changes: Any) -> GateRefusedError:
    """Return the refusal of a certificate whose attack record is changed so."""
    leakage = model_workspace.leakage("surgery", tmp_path / "leakage", **changes)
    with pytest.raises(GateRefusedError) as caught:
        model_workspace.certify("surgery", tmp_path / "bundle", leakage=leakage)
    assert not (tmp_path / "bundle").exists()
    assert caught.value.exit_code == ExitCode.REFUSED
    return caught.value


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": "refused", "reasons": ("whitebox is better than on the reference",)},
        {"decision": "refused", "reasons": ()},
        {"decision": "passed", "reasons": ("something",)},
        {"models": {"before": "a" * 64, "after": "b" * 64, "reference": "c" * 64}},
        {"modalities": ("text",)},
        {"data": {"name": "other data", "digest": "a" * 64}},
        {"attacks": ()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_evidence_that_does_not_carry_a_certificate_is_refused(
    model_workspace: ModelWorkspace, tmp_path: Path, changes: dict[str, Any]
) -> None:
    refusal_of(model_workspace, tmp_path, **changes)


def test_a_weak_audit_is_refused_by_key_value_bound_and_hint(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    deletion = read_deletion(model_workspace.deletion("surgery"))
    assert deletion
    suite = leakage_record(deletion).suite
    wide = suite.model_copy(update={"parameters": suite.parameters | {"tolerance": 1.0}})
    error = refusal_of(model_workspace, tmp_path, suite=wide)
    assert (error.key, error.value, error.file) == ("attacks.tolerance", 1.0, tmp_path / "leakage" / "leakage.json")
    assert "1.0 is beyond the bounds of a certificate: 0 to 0.05" in error.problem
    assert error.hint == "attack again with attacks.tolerance within 0 to 0.05"


def test_a_first_certificate_needs_the_model_before(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    deletion = read_deletion(model_workspace.deletion("surgery"))
    assert deletion
    models = {role: digest for role, digest in leakage_record(deletion).models.items() if role != "before"}
    assert refusal_of(model_workspace, tmp_path, models=models).key == "--before"


def test_the_error_has_the_reason_of_the_gate(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    assert "audio moves the output" in str(
        refusal_of(model_workspace, tmp_path, decision="refused", reasons=("audio moves the output",))
    )


def test_one_refused_attack_is_enough_whatever_the_decision_says(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    leakage = model_workspace.leakage("surgery")
    assert leakage is not None
    content = read_json(leakage / "leakage.json")
    content["attacks"][0]["decision"] = "refused"
    write_leakage(tmp_path / "leakage", LeakageRecord.model_validate(content))
    with refused(GateRefusedError, key=None, file=tmp_path / "leakage" / "leakage.json"):
        model_workspace.certify("surgery", tmp_path / "bundle", leakage=tmp_path / "leakage")


@pytest.mark.parametrize("order", ["saliency", "importance"])
def test_without_the_structural_cut_there_is_no_certificate(
    model_workspace: ModelWorkspace, tmp_path: Path, order: str
) -> None:
    params = model_workspace.params("deletion.surgery.cut=false", f"deletion.surgery.order={order}")
    delete.run(
        params, model_workspace.folder / "data", model_workspace.folder / "model", ["audio"], [], tmp_path / "deleted"
    )
    with refused(GateRefusedError, key="deletion.surgery.cut"):
        certify.run(
            params,
            tmp_path / "deleted",
            model_workspace.leakage("surgery"),
            model_workspace.evaluation("surgery"),
            tmp_path / "out",
        )


def test_noise_that_anyone_can_subtract_carries_no_certificate(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    params = model_workspace.params("deletion.surgery.edit=noise", "deletion.noise_seed=0")
    delete.run(
        params, model_workspace.folder / "data", model_workspace.folder / "model", ["audio"], [], tmp_path / "deleted"
    )
    with refused(GateRefusedError, key="deletion.noise_seed"):
        certify.run(
            params,
            tmp_path / "deleted",
            model_workspace.leakage("surgery"),
            model_workspace.evaluation("surgery"),
            tmp_path / "out",
        )


def with_copy(model_workspace: ModelWorkspace, tmp_path: Path, part: str, change: Callable[[Path], object]) -> MbdError:
    """Return the refusal of a certificate of which one input folder has been changed."""
    attacked = model_workspace.leakage("surgery")
    assert attacked is not None
    folders = {
        "deletion": model_workspace.deletion("surgery"),
        "leakage": attacked,
        "evaluation": model_workspace.evaluation("surgery"),
    }
    shutil.copytree(folders[part], tmp_path / part)
    change(tmp_path / part)
    folders[part] = tmp_path / part
    with pytest.raises(MbdError) as caught:
        certify.run(
            model_workspace.params(),
            folders["deletion"],
            folders["leakage"],
            folders["evaluation"],
            tmp_path / "bundle",
        )
    assert not (tmp_path / "bundle").exists()
    return caught.value


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("deletion", "model.safetensors"),
        ("deletion", "model.json"),
        ("deletion", "deletion.json"),
        ("deletion", "indices.safetensors"),
        ("deletion", "step.json"),
        ("leakage", "leakage.json"),
        ("leakage", "step.json"),
        ("evaluation", "metrics.json"),
        ("evaluation", "step.json"),
    ],
)
def test_a_missing_input_is_an_error(model_workspace: ModelWorkspace, tmp_path: Path, part: str, name: str) -> None:
    error = with_copy(model_workspace, tmp_path, part, lambda folder: (folder / name).unlink())
    assert error.exit_code in {ExitCode.BAD_DATA, ExitCode.REFUSED}
    assert name in str(error)


@pytest.mark.parametrize(
    ("part", "name", "old", "new"),
    [
        ("deletion", "deletion.json", '"kind": "empirical"', '"kind":  "empirical"'),
        ("deletion", "model.json", '"seed": "0"', '"seed": "1"'),
        ("leakage", "leakage.json", "0.52", "0.51"),
        ("evaluation", "metrics.json", '"rows": 64', '"rows": 65'),
    ],
)
def test_a_file_that_its_step_did_not_write_is_refused(
    model_workspace: ModelWorkspace, tmp_path: Path, part: str, name: str, old: str, new: str
) -> None:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    error = with_copy(model_workspace, tmp_path, part, change)
    assert error.exit_code == ExitCode.BAD_DATA
    assert "not what the step wrote" in str(error)


def test_weights_of_another_model_are_refused(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    def change(folder: Path) -> None:
        shutil.copy(model_workspace.folder / "silent" / "model.safetensors", folder)
        step = read_json(folder / "step.json")
        step["outputs"]["files"]["model.safetensors"] = weights_of(model_workspace.folder / "silent")
        (folder / "step.json").write_text(to_json(step))

    error = with_copy(model_workspace, tmp_path, "deletion", change)
    assert error.exit_code == ExitCode.REFUSED
    assert "model.safetensors" in str(error)


def test_an_evaluation_of_another_model_is_refused(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    with refused(GateRefusedError, key="model", file=model_workspace.evaluation("certified") / "metrics.json"):
        certify.run(
            model_workspace.params(),
            model_workspace.deletion("surgery"),
            model_workspace.leakage("surgery"),
            model_workspace.evaluation("certified"),
            tmp_path / "bundle",
        )


def test_attacks_are_needed_for_a_modality_and_say_nothing_about_subjects(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    with refused(UsageError, key="--leakage", value=None):
        model_workspace.certify("surgery", tmp_path / "bundle", leakage=None)
    with refused(UsageError, key="--leakage", value=model_workspace.leakage("exact")):
        model_workspace.certify("subjects", tmp_path / "bundle", leakage=model_workspace.leakage("exact"))


def test_what_a_verifier_would_refuse_is_not_signed(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    """A σ too small for its ε, in a deletion whose files all belong together, must not be signed."""
    source = tmp_path / "deletion"
    shutil.copytree(model_workspace.deletion("certified"), source)
    record = read_json(source / "deletion.json")
    record["facts"]["sigma"] /= 2
    (source / "deletion.json").write_text(to_json(record))
    step = read_json(source / "step.json")
    step["outputs"]["files"]["deletion.json"] = sha256_file(source / "deletion.json")
    (source / "step.json").write_text(to_json(step))
    evaluation = tmp_path / "evaluation"
    shutil.copytree(model_workspace.evaluation("certified"), evaluation)
    judged = read_json(evaluation / "step.json")
    for name in judged["inputs"]:
        if name.startswith("model "):
            judged["inputs"][name]["digest"] = path_digest(source)
    (evaluation / "step.json").write_text(to_json(judged))
    with refused(GateRefusedError, file=source):
        certify.run(
            model_workspace.params(), source, model_workspace.leakage("certified"), evaluation, tmp_path / "bundle"
        )
    assert not (tmp_path / "bundle").exists()


def repository(folder: Path) -> str:
    """Make a repository with one commit; return the commit."""
    (folder / "file").write_text("one")
    who = {"user.name": "somebody", "user.email": "somebody@example.org"}
    for command in (["init", "-q", "."], ["add", "file"], ["commit", "-q", "-m", "first"]):
        assert git("-C", str(folder), *command, settings=who).returncode == 0
    return git("-C", str(folder), "rev-parse", "HEAD").stdout.strip()


def test_outside_of_any_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert set(provenance({}).values()) == {None}


def test_the_commit_of_the_working_folder_is_marked_once_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert provenance({})["git_commit"] == commit
    (tmp_path / "file").write_text("two")
    assert provenance({})["git_commit"] == f"{commit}-dirty"
    assert provenance({"MBD_GIT_COMMIT": "abc"})["git_commit"] == "abc"


def test_what_could_be_a_secret_or_a_sentence_is_refused_and_not_repeated() -> None:
    for value in ("two words", "x" * 300, "line\nbreak"):
        with refused(UsageError, key="MBD_RUN_ID") as caught:
            provenance({"MBD_RUN_ID": value})
        assert value not in str(caught.value)
