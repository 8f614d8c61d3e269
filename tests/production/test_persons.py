"""A person's request, from submission to certificate, in whichever split they are; their name is in no byte."""

import json
import logging
from itertools import zip_longest
from pathlib import Path

import pytest

from mbd.certificate.guard import admit
from mbd.errors import DataError, UsageError, VerificationError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.files import sha256_file, write_file
from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import DeletionStatement, NothingHeldStatement
from mbd.history.state import status_in
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import claim_name
from mbd.params import load_params
from mbd.production import models, register
from mbd.production.request_store import RequestStore
from mbd.production.stages import Stages
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.records import now
from mbd.steps import publish, train, verify
from mbd.verifier.verdict import REPLACEMENT
from tests.history.revocations import not_admitted
from tests.production.registering import NAME, Production
from tests.refusals import refused

NO_KEYS = "certificate.trust=none.json"
"""as on a machine on which nothing was ever published"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Production:
    return Production.make(tmp_path_factory.mktemp("production"))


@pytest.fixture
def production(trained: Production, request: pytest.FixtureRequest) -> Production:
    found = trained.with_store(request.node.name.replace("[", "-").rstrip("]"))
    found.register("text", "audio", "visual")
    return found


def person_in(production: Production, split: str, number: int = 0) -> str:
    return str(sorted(set(FeatureSet.open(production.features).split(split).groups.tolist()))[number])


def carry_out(production: Production) -> list[DeletionRequest]:
    worker = Worker(
        production.params, RequestStore.open(production.params, production.url), production.url, None, None, "worker"
    )
    return [done for done, _ in worker.run()]


def ask(production: Production, *subjects: str, modality: str = "audio", **options: bool) -> list[DeletionRequest]:
    submit(production.params, production.url, NAME, [modality], subjects, **options)  # type: ignore[arg-type]
    return carry_out(production)


def retrained(production: Production, out: Path, *subjects: str, modality: str = "audio") -> str:
    """Return the digest of a model that was trained on data without a modality of persons."""
    (out / "data").mkdir(parents=True)
    leave_out(production.features, out / "data", {modality: subjects})
    elsewhere = load_params(None, [*production.settings, f"store.url=file://{out}/store", NO_KEYS])
    result = train.run(elsewhere, out / "data", out / "model")
    assert result is not None
    return result.sha256


def test_a_person_in_train_is_forgotten_exactly(production: Production, tmp_path: Path) -> None:
    first, second = person_in(production, "train"), person_in(production, "train", 1)
    done = ask(production, first, second)
    assert [one.state for one in done] == ["certified"] * 2
    (certificate,) = {one.certificate for one in done}
    model = production.known()
    assert model.current is not None
    assert (model.current.digest, model.revoked, len(model.persons)) == (certificate, frozenset(), 1)
    assert model.current.weights == retrained(production, tmp_path, first, second)
    place = f"{production.url}/certificates/{certificate}"
    assert verify.run(production.params, place, trust=production.trust_file).verified
    with not_admitted("the model was trained on recordings of a person"):
        admit(production.model, production.store, production.trust)
    assert [m for m, one in model.references.items() if one] == ["audio"]  # the others have heard them


@pytest.mark.parametrize("split", ["valid", "test", "calibration"])
def test_no_weight_depends_on_a_person_in_another_split(production: Production, split: str) -> None:
    (done,) = ask(production, person_in(production, split))
    assert (done.state, done.certificate) == ("certified", digest_of_current(production))
    statement = production.history().certificate(str(done.certificate))
    assert statement.digests[WEIGHTS] == sha256_file(production.model / WEIGHTS)
    assert statement.predicate.guarantee.kind == "exact"
    assert any("No number of the weights depends" in text for text in statement.predicate.guarantee.assumptions)
    assert admit(production.model, production.store, production.trust).registration  # the weights are the same


def digest_of_current(production: Production) -> str:
    current = production.known().current
    assert current is not None
    return current.digest


def test_nothing_held_is_stated_signed_and_logged(production: Production) -> None:
    with refused(UsageError, key="--subject"):
        ask(production, "never-recorded")
    before = digest_of_current(production)
    (done,) = ask(production, "never-recorded", nothing_held=True)
    assert (done.state, done.history[-1].note) == ("certified", "nothing was held of this person")
    statement = production.history().statement(str(done.certificate))
    assert isinstance(statement, NothingHeldStatement)
    assert (statement.certificate, digest_of_current(production)) == (before, before)
    assert "never-recorded" not in statement.to_json()


def test_an_unknown_model_or_modality_is_an_error_at_submission(production: Production) -> None:
    person = person_in(production, "train")
    with refused(DataError, value="another"):
        submit(production.params, production.url, "another", ["audio"], [person])
    with refused(UsageError, key="--modality", value="smell"):
        submit(production.params, production.url, NAME, ["smell"])
    with refused(UsageError, key="modalities", value="audio, text"):
        submit(production.params, production.url, NAME, ["audio", "text"], [person])
    assert not list(RequestStore.open(production.params, production.url).all())


def test_persons_stay_forgotten_in_later_deletions_and_trainings(production: Production, tmp_path: Path) -> None:
    first, second = person_in(production, "train"), person_in(production, "train", 1)
    ask(production, first)
    ask(production, second, modality="visual")
    model = production.known()
    assert model.current is not None
    (tmp_path / "data").mkdir()
    leave_out(production.features, tmp_path / "data", {"audio": [first], "visual": [second]})
    elsewhere = load_params(None, [*production.settings, f"store.url=file://{tmp_path}/store", NO_KEYS])
    expected = train.run(elsewhere, tmp_path / "data", tmp_path / "expected")
    again = train.run(production.params, production.features, tmp_path / "again")
    assert expected is not None
    assert again is not None
    assert model.current.weights == expected.sha256 == again.sha256
    registered = production.register(model=tmp_path / "again")
    assert admit(tmp_path / "again", production.store, production.trust).registration == registered.registration
    (done,) = ask(production, first)
    assert done.history[-1].note == "deleted before"
    submit(production.params, production.url, NAME, ["audio"])
    (done,) = carry_out(production)
    assert done.state == "certified"
    assert production.known().revoked == {"audio"}


def test_a_person_may_revoke_every_modality(production: Production, tmp_path: Path) -> None:
    person = person_in(production, "train")
    for modality in ("text", "audio", "visual"):
        (done,) = ask(production, person, modality=modality)
        assert done.state == "certified", done.history[-1].note
    (tmp_path / "data").mkdir()
    leave_out(production.features, tmp_path / "data", {key: [person] for key in ("text", "audio", "visual")})
    elsewhere = load_params(None, [*production.settings, f"store.url=file://{tmp_path}/store", NO_KEYS])
    expected = train.run(elsewhere, tmp_path / "data", tmp_path / "expected")
    current = production.known().current
    assert current is not None
    assert expected is not None
    assert current.weights == expected.sha256
    train.run(production.params, production.features, tmp_path / "again")
    train.run(production.params, production.features, tmp_path / "reference", ("text",))
    register.run(production.params, tmp_path / "again", [tmp_path / "reference"], NAME, production.url)
    assert production.known().references["text"] is not None


def test_a_model_that_still_holds_a_revoked_person_is_not_published(production: Production, tmp_path: Path) -> None:
    first, second, third = (person_in(production, "train", number) for number in range(3))
    stale = tmp_path / "stale"
    stale.mkdir()
    write_file(stale / "request.json", "{}")
    overtaken = Stages(production.params, ("audio",), [second])  # by another worker
    overtaken.run(production.features, production.model, None, stale / "request.json", stale)
    ask(production, first)
    with refused(VerificationError, match="trained on recordings", key="lineage.before"):
        publish.run(production.params, stale / "bundle", stale / "deleted", production.url)
    digest = sha256_file(stale / "bundle" / CERTIFICATE)
    envelope = (stale / "bundle" / CERTIFICATE).read_bytes()
    production.store.create(certificate_name(digest), envelope)
    production.store.create(claim_name(production.history().size), bytes.fromhex(digest))  # somebody without a key
    with refused(LogDamagedError, match="the model was trained on recordings"):
        ask(production, third)
    production.private_openings(digest).unlink()
    with refused(LogDamagedError, match="not known whether"):
        ask(production, third)
    assert digest not in production.history().certificates


def test_a_later_deletion_for_a_person_outdates_the_certificates_before_it(production: Production) -> None:
    (first,) = ask(production, person_in(production, "train"))
    (second,) = ask(production, person_in(production, "train", 1), modality="visual")
    (third,) = ask(production, person_in(production, "valid"))  # no weight depends on them
    history = production.history()
    states = [status_in(history, one, now()) for one in history.certificates.values()]
    assert [one.state for one in states] == ["outdated", "valid", "valid"]
    assert str(second.certificate)[:16] in states[0].reason
    places = [f"{production.url}/certificates/{one.certificate}" for one in (first, second, third)]
    verdicts = [verify.run(production.params, place, trust=production.trust_file) for place in places]
    assert [one.decision for one in verdicts] == ["replaced", "verified", "verified"]
    assert [check.name for check in verdicts[0].problems] == [REPLACEMENT]


def handed_out(production: Production, digest: str, folder: Path) -> Path:
    """Lay out a certificate as a person holds it."""
    folder.mkdir(parents=True)
    write_file(folder / CERTIFICATE, production.store.read(certificate_name(digest)))
    write_file(folder / PROOF, production.store.read(proof_name(digest)))
    for name, sha256 in production.history().certificate(digest).digests.items():
        production.store.fetch(object_name(sha256), folder / name, sha256=sha256)
    return folder


@pytest.mark.slow
def test_of_forty_persons_in_a_row_every_certificate_stays_verified_or_replaced(
    production: Production, tmp_path: Path
) -> None:
    rows = FeatureSet.open(production.features).split
    splits = [sorted(set(rows(split).groups.tolist()))[:-2] for split in ("train", "test", "valid", "calibration")]
    everyone = [str(person) for turn in zip_longest(*splits) for person in turn if person is not None]
    folders, current = [], ""
    for person in everyone[:40]:
        (done,) = ask(production, person)
        current = str(done.certificate)
        folders.append(handed_out(production, current, tmp_path / current))
    assert len(folders) == 40
    trust, store = production.trust_file, production.url
    verdicts = [verify.run(production.params, str(folder), trust=trust, store=store) for folder in folders]
    assert {verdict.decision for verdict in verdicts} == {"verified", "replaced"}
    assert verdicts[-1].verified
    for number, verdict in enumerate(verdicts):
        if verdict.decision == "replaced":
            assert verdict.successor
            assert (verdict.successor.digest, verdict.successor.current) == (current, True)
            assert verdict.successor.releases == len(folders) - 1 - number
            assert verify.run(production.params, verdict.successor.address, trust=trust).verified
    envelope = json.loads((folders[7] / CERTIFICATE).read_text())
    other = json.loads((folders[8] / CERTIFICATE).read_text())
    write_file(folders[7] / CERTIFICATE, json.dumps(envelope | {"payload": other["payload"]}, separators=(",", ":")))
    again = [verify.run(production.params, str(folder), trust=trust, store=store).decision for folder in folders]
    assert again == [*(v.decision for v in verdicts[:7]), "forged or damaged", *(v.decision for v in verdicts[8:])]


def test_the_certificate_of_another_person_answers_no_request(production: Production) -> None:
    (first,), (second,) = (ask(production, person_in(production, "train", number)) for number in (0, 1))
    (absent,) = ask(production, "never-recorded", nothing_held=True)
    requests = RequestStore.open(production.params, production.url)
    others = {first.id: second.certificate, second.id: absent.certificate, absent.id: first.certificate}
    assert carry_out(production) == []
    for request, certificate in others.items():
        marked = requests.get(request).model_copy(update={"certificate": certificate})
        requests.change(request, lambda _, marked=marked: marked)  # type: ignore[misc]
    assert {one.id for one in carry_out(production)} == set(others)
    assert [requests.get(one.id).certificate for one in (first, second)] == [first.certificate, second.certificate]
    answer = production.history().statement(str(requests.get(absent.id).certificate))
    assert isinstance(answer, NothingHeldStatement)


def test_without_the_openings_nothing_is_trained_until_the_persons_are_reinstated(
    production: Production, tmp_path: Path
) -> None:
    (done,) = ask(production, person_in(production, "train"))
    file = production.private_openings(str(done.certificate))
    kept = file.read_bytes()
    file.unlink()
    with refused(DataError, key="certificate.private"):
        train.run(production.params, production.features, tmp_path / "model")
    with refused(UsageError, key="--modality", value="audio"):
        models.reinstate(production.params, NAME, ["audio"], "consent of others", production.url)
    models.reinstate(production.params, NAME, ["audio"], "consent", production.url, person=str(done.certificate)[:12])
    result = train.run(production.params, production.features, tmp_path / "model")
    file.write_bytes(kept)
    assert result is not None
    assert result.sha256 == sha256_file(production.model / WEIGHTS)
    assert production.known().persons == ()


def test_the_name_of_a_person_is_in_no_byte_of_the_store_and_of_the_log_lines(
    production: Production, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    names = [person_in(production, split, 2) for split in ("train", "valid", "test")]
    assert {one.state for one in ask(production, *names)} == {"certified"}
    ask(production, "never-recorded", nothing_held=True)
    train.run(production.params, production.features, production.folder / f"{production.name}-again")
    spoken = caplog.text + "".join(capfd.readouterr())
    folder = Path(production.url.removeprefix("file://"))
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    files |= {"log lines": spoken.encode()}
    found = [
        (where, name)
        for where, content in files.items()
        for name in (*names, "never-recorded")
        if name.encode() in content
    ]
    assert found == []
    assert any(
        isinstance(production.history().statement(d), DeletionStatement) for d in production.history().certificates
    )
