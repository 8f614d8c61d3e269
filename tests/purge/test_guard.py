"""Which models are admitted to serving, and which inputs they may be given."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from mbd.certificate.compose import compose_revocation
from mbd.certificate.guard import admit, input_schema
from mbd.certificate.publish import announce
from mbd.errors import DataError, VerificationError
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import proof_name
from mbd.model.checkpoint import load_model, save_model
from mbd.records import now
from mbd.storage import open_store
from mbd.verifier.bundle import Bundle
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import ModelWorkspace
from tests.integration.command import mbd
from tests.log.build import refused_as_untrusted
from tests.refusals import refused


@pytest.fixture
def authority(model_workspace: ModelWorkspace, tmp_path: Path) -> CertificateAuthority:
    authority = CertificateAuthority.make(model_workspace, tmp_path / "authority")
    authority.publish("surgery")
    return authority


def refusal(authority: CertificateAuthority, model: Path, **options: object) -> str:
    with pytest.raises(VerificationError) as refused:
        admit(model, authority.store, authority.trust, **options)  # type: ignore[arg-type]
    return refused.value.problem


def test_a_certified_model_is_admitted_by_its_certificate(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    admission = admit(model_workspace.deletion("surgery"), authority.store, authority.trust)
    assert admission.certificate == Bundle(authority.folder / "published-surgery").digest
    assert admission.verdict is not None
    assert admission.verdict.verified


def test_a_certificate_that_was_logged_a_moment_ago_admits_before_its_proof_is_written(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    certificate = Bundle(authority.folder / "published-surgery").digest
    (authority.folder / "store" / proof_name(certificate)).unlink()
    assert admit(model_workspace.deletion("surgery"), authority.store, authority.trust).certificate == certificate


def test_a_model_whose_certificate_is_not_the_latest_is_admitted(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    authority.publish("exact")
    assert admit(model_workspace.deletion("surgery"), authority.store, authority.trust).record.backbone == "joint"
    assert admit(model_workspace.deletion("exact"), authority.store, authority.trust).record.backbone == "lattice"


def test_a_certificate_admits_a_model_under_its_own_name_only(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    model = model_workspace.deletion("surgery")
    assert admit(model, authority.store, authority.trust, name="sentiment").certificate
    assert "no certificate is about these weights" in refusal(authority, model, name="another")


def test_the_old_model_and_a_modified_model_are_not_admitted(
    authority: CertificateAuthority, model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    assert "no certificate is about these weights" in refusal(authority, model_workspace.folder / "model")
    changed = shutil.copytree(model_workspace.deletion("surgery"), tmp_path / "changed")
    record, tensors = load_model(changed)
    first = next(iter(tensors))
    (changed / WEIGHTS).unlink()
    save_model(changed, record, tensors | {first: tensors[first] + 1})
    assert "no certificate is about these weights" in refusal(authority, changed)


def test_certified_weights_beside_another_record_are_not_admitted(
    authority: CertificateAuthority, model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    model = shutil.copytree(model_workspace.deletion("surgery"), tmp_path / "model")
    record = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(record | {"revoked": []}))
    assert "digest of model.json" in refusal(authority, model)


def test_a_model_with_a_revoked_or_overdue_certificate_is_not_admitted(
    authority: CertificateAuthority, model_workspace: ModelWorkspace
) -> None:
    model = model_workspace.deletion("surgery")
    assert "audit was due by" in refusal(authority, model, at=now() + timedelta(days=100), max_age=None)
    digest = Bundle(authority.folder / "published-surgery").digest
    announce(compose_revocation(digest, "a mistake", now()), authority.params().certificate, authority.publisher())
    assert "revoked" in refusal(authority, model)


def test_a_model_certified_by_an_untrusted_key_is_not_admitted(
    authority: CertificateAuthority, model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    stranger = CertificateAuthority.make(model_workspace, tmp_path / "stranger")
    with refused_as_untrusted("it is of the log"):
        admit(model_workspace.deletion("surgery"), authority.store, stranger.trust)


def test_a_folder_without_weights_is_bad_data(authority: CertificateAuthority, tmp_path: Path) -> None:
    with refused(DataError, file=tmp_path / "model.safetensors"):
        admit(tmp_path, open_store(authority.url), authority.trust)


def test_the_schema_takes_retained_modalities_and_rejects_the_revoked_one(model_workspace: ModelWorkspace) -> None:
    record, _ = load_model(model_workspace.deletion("surgery"))
    schema = input_schema(record)
    jsonschema.Draft202012Validator.check_schema(schema)
    rows = {name: [[0.5] * dim] * 2 for name, dim in record.inputs.items()}
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert set(rows) == {"text", "visual"}
    assert valid(rows)
    assert valid({"text": rows["text"]})
    assert not valid(rows | {"audio": [[0.5] * 6] * 2})
    assert not valid({"audio": []})
    assert not valid({})
    assert not valid({"text": [[0.5]]})
    assert not valid({"text": [["loud"] * record.inputs["text"]]})
    assert not valid({"smell": []})


def test_the_command_admits_with_0_and_refuses_with_4(
    authority: CertificateAuthority, model_workspace: ModelWorkspace, alone: dict[str, str]
) -> None:
    def guard(model: Path) -> tuple[int, str]:
        trust = ("--trust", authority.trust_file)
        done = mbd("guard", "--model", model, "--store", authority.url, *trust, environment=alone)
        return done.returncode, done.stdout

    code, text = guard(model_workspace.deletion("surgery"))
    assert code == 0
    assert json.loads(text)["properties"]["audio"] is False
    assert guard(model_workspace.folder / "model") == (4, "")
