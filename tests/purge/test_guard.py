"""Which models are admitted to serving, and which inputs they may be given."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from mbd.certificate.bundle import Bundle
from mbd.certificate.guard import admit, input_schema
from mbd.certificate.lifecycle import announce, revocation
from mbd.certificate.trust import now
from mbd.errors import DataError, VerificationError
from mbd.files import sha256_file
from mbd.model.checkpoint import WEIGHTS, load_model, save_model
from mbd.purge.targets import Target, Targets
from mbd.purge.tombstones import bury
from mbd.storage import open_store
from tests.certificate.build import Home
from tests.certificate.office import Office
from tests.integration.command import mbd


@pytest.fixture
def office(home: Home, tmp_path: Path) -> Office:
    office = Office.make(home, tmp_path / "office")
    office.publish("surgery")
    return office


def refusal(office: Office, model: Path, **options: object) -> str:
    with pytest.raises(VerificationError) as refused:
        admit(model, office.store, office.trust, **options)  # type: ignore[arg-type]
    return refused.value.problem


def test_a_certified_model_is_admitted_by_its_certificate(office: Office, home: Home) -> None:
    admission = admit(home.deletion("surgery"), office.store, office.trust)
    assert admission.certificate == Bundle(office.folder / "published-surgery").digest
    assert admission.verdict.verified


def test_one_that_was_replaced_by_a_later_pointer_is_found_all_the_same(office: Office, home: Home) -> None:
    office.publish("exact")
    assert admit(home.deletion("surgery"), office.store, office.trust).record.backbone == "joint"
    assert admit(home.deletion("exact"), office.store, office.trust).record.backbone == "lattice"


def test_the_old_model_is_not_admitted_nor_is_one_that_was_changed(office: Office, home: Home, tmp_path: Path) -> None:
    assert "no certificate is about these weights" in refusal(office, home.folder / "model")
    changed = shutil.copytree(home.deletion("surgery"), tmp_path / "changed")
    record, tensors = load_model(changed)
    first = next(iter(tensors))
    (changed / WEIGHTS).unlink()
    save_model(changed, record, tensors | {first: tensors[first] + 1})
    assert "no certificate is about these weights" in refusal(office, changed)


def test_certified_weights_beside_another_record_are_not_admitted(office: Office, home: Home, tmp_path: Path) -> None:
    model = shutil.copytree(home.deletion("surgery"), tmp_path / "model")
    record = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(record | {"revoked": []}))
    assert "digest of model.json" in refusal(office, model)


def test_nor_is_one_whose_certificate_is_revoked_or_overdue(office: Office, home: Home) -> None:
    model = home.deletion("surgery")
    assert "to be attacked again" in refusal(office, model, at=now() + timedelta(days=100))
    digest = Bundle(office.folder / "published-surgery").digest
    announce(revocation(digest, "a mistake", now()), office.params().certificate, office.publisher())
    assert "revoked" in refusal(office, model)


def test_nor_one_that_has_a_tombstone(office: Office, home: Home) -> None:
    model = home.deletion("surgery")
    bury(office.store, Targets([Target(sha256_file(model / WEIGHTS), "weights")]), "c" * 64)
    assert "must not come back" in refusal(office, model)


def test_nor_one_by_keys_that_nobody_trusts(office: Office, home: Home, tmp_path: Path) -> None:
    stranger = Office.make(home, tmp_path / "stranger")
    with pytest.raises(VerificationError, match="not admitted"):
        admit(home.deletion("surgery"), office.store, stranger.trust)


def test_a_folder_without_weights_is_bad_data(office: Office, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no weights"):
        admit(tmp_path, open_store(office.url), office.trust)


def test_the_schema_takes_retained_modalities_and_rejects_the_revoked_one(home: Home) -> None:
    record, _ = load_model(home.deletion("surgery"))
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


def test_the_command_admits_with_0_and_refuses_with_4(office: Office, home: Home, alone: dict[str, str]) -> None:
    sets = [part for setting in office.settings for part in ("--set", setting)]

    def guard(model: Path) -> tuple[int, str]:
        done = mbd("guard", "--model", model, "--store", office.url, *sets, environment=alone)
        return done.returncode, done.stdout

    code, text = guard(home.deletion("surgery"))
    assert code == 0
    assert json.loads(text)["properties"]["audio"] is False
    assert guard(home.folder / "model") == (4, "")
