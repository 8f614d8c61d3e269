"""Tasks around the model in production: a deletion starts at the log, trains nothing registered, and ends there."""

import logging
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path

import pytest

from mbd.errors import ExitCode
from mbd.features.contract import FeatureSet
from mbd.files import read_json, sha256_file
from mbd.formats.features import FeatureLocation
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import object_name
from mbd.formats.purge import Copy, Target
from mbd.history.lineage import keep_subject
from mbd.kubeflow import tasks
from mbd.kubeflow import tasks as steps
from mbd.kubeflow.common import write_params, write_resolved
from mbd.kubeflow.data import feature_set
from mbd.params import load_params
from mbd.steps import purge
from mbd.storage import open_store
from mbd.trust.commitments import read_lineage_key
from pipelines.checks import find_problems
from tests.kubeflow.workspace import PlainArtifact
from tests.production.registering import Production


@dataclass(frozen=True)
class Run:
    """The tasks of one run of a pipeline, with artifacts in a folder of its own."""

    production: Production
    folder: Path
    run: str = "run-42"
    artifacts: dict[str, PlainArtifact] = field(default_factory=dict)

    def artifact(self, name: str) -> PlainArtifact:
        return self.artifacts.setdefault(name, PlainArtifact(str(self.folder / name)))

    @property
    def text(self) -> str:
        return write_params(self.production.params)

    @property
    def params(self) -> PlainArtifact:
        if "params" not in self.artifacts:
            write_resolved(self.artifact("params"), write_params(self.production.params))
        return self.artifact("params")

    def fetch(self, *modalities: str, subjects: tuple[str, ...] = ()) -> list[str]:
        model, data = self.artifact("model"), self.artifact("data")
        return tasks.fetch(self.text, self.artifact("params"), modalities, subjects, model, data)

    def reference(self, *modalities: str, subjects: tuple[str, ...] = ()) -> PlainArtifact:
        given = self.params, self.artifact("data"), self.artifact("model")
        tasks.registered_reference(*given, modalities, subjects, self.artifact("reference"))
        return self.artifact("reference")

    def certify(self, *modalities: str, subjects: tuple[str, ...] = ()) -> None:
        """Delete, evaluate, attack and certify."""
        params, data, reference = self.params, self.artifact("data"), self.artifact("reference")
        deleted, before = self.artifact("deleted"), self.artifact("model")
        steps.delete(params, data, before, reference, modalities, subjects, deleted)
        shown = self.artifact("metrics"), self.artifact("page")
        steps.evaluate(params, data, deleted, self.artifact("evaluation"), *shown, reference, subjects)
        models = {"before": before, "after": deleted, "reference": reference}
        steps.attack(params, data, modalities, self.artifact("leakage"), *shown, subjects=subjects, **models)
        evidence = self.artifact("leakage"), self.artifact("evaluation")
        steps.certify(params, data, deleted, *evidence, "", self.run, self.artifact("certificate"))

    def publish(self) -> str:
        given = self.artifact("certificate"), self.artifact("deleted"), self.artifact("published")
        steps.publish(self.params, *given, self.artifact("page"))
        return str(self.artifact("published").metadata["certificate"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Production:
    # weights of these tests alone: a purge recognises those of other tests wherever it looks
    return Production.make(tmp_path_factory.mktemp("production"), "training.seed=33")


@pytest.fixture
def production(trained: Production, request: pytest.FixtureRequest) -> Production:
    return trained.with_store(request.node.name)


@pytest.fixture
def run(production: Production, tmp_path: Path) -> Run:
    return Run(production, tmp_path)


def person(production: Production, split: str = "train") -> tuple[str, str]:
    """Return a person in a split, and the reference to them in the private part of the store."""
    name = str(FeatureSet.open(production.features).split(split).groups[0])
    return name, keep_subject(production.private, name, read_lineage_key(production.params.certificate))


def failing(call: object, *arguments: object, **named: object) -> ExitCode:
    with pytest.raises(SystemExit) as caught:
        call(*arguments, **named)  # type: ignore[operator]
    return ExitCode(int(str(caught.value.code)))


def test_a_registered_model_is_fetched_with_its_reference_and_nothing_is_trained(run: Run) -> None:
    run.production.register("audio")
    assert run.fetch("audio") == ["audio"]
    assert sha256_file(run.artifact("model").folder / WEIGHTS) == sha256_file(run.production.model / WEIGHTS)
    assert run.artifact("model").metadata["sha256"] == sha256_file(run.production.model / WEIGHTS)
    data = FeatureSet.open(run.production.features).digests()
    with feature_set(run.artifact("data").folder, run.production.params) as folder:
        assert FeatureSet.open(folder).digests() == data
    reference = run.reference("audio")
    assert reference.metadata == {"trained": False}
    (registered,) = run.production.references("audio")
    assert sha256_file(reference.folder / WEIGHTS) == sha256_file(registered / WEIGHTS)


def test_a_reference_that_is_not_registered_is_trained_and_that_is_said(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run.production.register("audio")
    run.fetch("visual")
    reference = run.reference("visual")
    assert reference.metadata == {"trained": True}
    assert "no reference without visual is registered, so one is trained" in capfd.readouterr().err
    (like,) = run.production.references("visual")
    assert sha256_file(reference.folder / WEIGHTS) == sha256_file(like / WEIGHTS)


def test_what_cannot_be_deleted_ends_the_first_task(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert failing(run.fetch, "audio") == ExitCode.USAGE
    assert "the log has no release of this model yet" in capfd.readouterr().err
    run.production.register("audio")
    assert failing(run.fetch, "smell") == ExitCode.USAGE
    assert failing(run.fetch, "text", "audio", "visual") == ExitCode.USAGE
    assert not run.artifact("data").folder.exists()


def test_the_deleted_model_becomes_current_and_the_next_deletion_starts_from_it(run: Run, tmp_path: Path) -> None:
    run.production.register("audio", "visual")
    run.fetch("audio")
    run.reference("audio")
    run.certify("audio")
    certificate = run.publish()
    known = run.production.known()
    assert known.current is not None
    assert (known.current.digest, known.revoked) == (certificate, frozenset({"audio"}))
    following = Run(run.production, tmp_path / "following")
    assert failing(following.fetch, "audio") == ExitCode.USAGE
    assert following.fetch("visual") == ["visual"]
    fetched, deleted = (one.folder / "deletion.json" for one in (following.artifact("model"), run.artifact("deleted")))
    assert fetched.read_bytes() == deleted.read_bytes()


def test_a_certificate_is_not_published_when_another_release_has_become_current(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run.production.register("audio")
    run.fetch("audio")
    run.reference("audio")
    run.certify("audio")
    run.production.register(model=run.production.folder / "challenger")
    assert failing(run.publish) == ExitCode.BAD_DATA
    assert "from another model than the current one" in capfd.readouterr().err
    assert run.production.known().certificates == ()
    assert failing(run.reference, "audio") == ExitCode.USAGE  # nor is one run mixed of two releases


def test_a_person_is_deleted_by_reference_and_stays_left_out(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    run.production.register("audio", "visual")
    name, reference = person(run.production)
    run.fetch("audio", subjects=(reference,))
    run.reference("audio", subjects=(reference,))
    run.certify("audio", subjects=(reference,))
    sealed = run.artifact("deleted").folder / "deletion.json.sealed"
    kept = sealed.read_bytes()
    sealed.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert failing(run.publish) == ExitCode.BAD_DATA
    sealed.write_bytes(kept)
    certificate = run.publish()
    (known,) = run.production.known().persons
    assert known.digest == certificate
    assert name not in capfd.readouterr().err + caplog.text
    assert name not in "".join(str(one.metadata) for one in run.artifacts.values())
    written = [*(run.production.folder / "stores" / run.production.name).rglob("*"), *tmp_path.rglob("*")]
    assert not [file for file in written if file.is_file() and name.encode() in file.read_bytes()]

    again = Run(run.production, tmp_path / "again")
    assert failing(again.fetch, "audio", subjects=(reference,)) == ExitCode.USAGE
    assert "of 1 of 1 persons no recording of audio is held" in capfd.readouterr().err
    again.fetch("visual")
    assert FeatureLocation.read(again.artifact("data").folder, "reference").left_out == (certificate,)
    with feature_set(again.artifact("data").folder, run.production.params) as folder:
        split = FeatureSet.open(folder).split("train")
        assert not split.available["audio"][split.groups == name].any()
    assert again.reference("visual").metadata == {"trained": True}  # the registered one has heard them
    outputs = [again.artifact(name) for name in ("resolved", "all", "metrics")]
    steps.features(again.text, outputs[0], outputs[1], outputs[2])  # of a retraining
    assert FeatureLocation.read(again.artifact("all").folder, "reference").left_out == (certificate,)


def test_an_unknown_pseudonym_is_an_error(run: Run) -> None:
    run.production.register("audio")
    assert failing(run.fetch, "audio", subjects=("0" * 64,)) == ExitCode.BAD_DATA


def test_a_trained_model_is_registered_with_its_run_and_promoted_only_if_it_is_not_worse(run: Run) -> None:
    params = load_params(None, [*run.production.settings, "registration.metric=mae"])
    data = run.artifact("data"), run.artifact("metrics")
    assert steps.features(write_params(params), run.artifact("params"), *data) == ["text", "audio", "visual"]
    models = [run.production.model, run.production.folder / "challenger"]
    found = []
    for number, folder in enumerate(models):
        references = [PlainArtifact(str(one)) for one in run.production.references("audio")[: 1 - number]]
        registered = run.artifact(f"registered-{number}")
        tasks.register(run.params, data[0], PlainArtifact(str(folder)), references, registered, f"run-{number}")
        found.append(read_json(registered.folder))
    assert [one.run_id for one in run.production.known().registrations] == ["run-0", "run-1"]
    metrics = [one.metrics["mae"] for one in run.production.known().registrations]
    assert [one["promoted"] for one in found] == [True, metrics[1] <= metrics[0]]
    assert list(found[0]["references"]) == ["audio"]


def test_a_submission_is_compared_with_the_log(run: Run) -> None:
    params = run.production.params

    def problems(pipeline: str, **arguments: object) -> list[str]:
        found = [*find_problems(pipeline, params, arguments)]
        return [problem for problem in found if not problem.startswith(("platform.", "store."))]

    (unknown,) = problems("delete", modalities=["audio"])
    assert unknown.startswith("the log has no release of sentiment")
    run.production.register("audio")
    assert problems("delete", modalities=["audio"]) == []
    assert problems("delete", modalities=["smell"]) == ["sentiment does not take smell; it takes audio, text, visual"]
    assert problems("reaudit", modality="audio") == ["audio was not deleted from sentiment; nothing was"]


def test_a_purge_without_a_copy_of_the_old_weights_knows_them_by_the_store(run: Run) -> None:
    run.production.register("audio")
    run.fetch("audio")
    run.reference("audio")
    run.certify("audio")
    run.publish()
    weights = run.production.model / WEIGHTS
    params, digest = run.production.params, sha256_file(weights)
    receipt = run.artifact("published").folder / "receipt.json"

    def planned() -> tuple[Target, list[Copy]]:
        """Return what a purge in an empty workspace knows of the old weights, and the copies that it sees."""
        made = purge.plan(params, receipt, params.store.url, run.artifact("deleted").folder, root=run.folder / "empty")
        target = made.purged.targets.by_sha256(digest)
        assert target is not None
        return target, [copy for place in made.inventory() for copy in place.copies if copy.sha256 == digest]

    target, copies = planned()
    assert (target.size, target.md5) == (weights.stat().st_size, md5(weights.read_bytes()).hexdigest())
    assert [Path(copy.name).relative_to(params.store.url.removeprefix("file://")) for copy in copies] == [
        Path(object_name(digest))
    ]
    store = open_store(params.store.url, params.store)
    store.delete(list(store.versions(object_name(digest))))
    store.create(object_name(digest), b"something of another size, to hide the copies of the true one")
    planted, copies = planned()
    assert (planted.size, planted.md5) == (None, None), copies


def test_an_audit_of_audio_follows_the_model_after_visual_was_deleted_too(run: Run, tmp_path: Path) -> None:
    run.production.register("audio", "visual")
    last = run
    for modality, folder in (("audio", "first"), ("visual", "second")):
        last = Run(run.production, tmp_path / folder, f"run-{folder}")
        last.fetch(modality)
        last.reference(modality)
        last.certify(modality)
        last.publish()
    audit = Run(run.production, tmp_path / "audit", "run-audit")
    revoked, certificate = steps.published(audit.params, "audio", audit.artifact("model"))
    assert certificate == last.artifact("published").metadata["certificate"]
    assert sorted(revoked) == ["audio", "visual"]
    shown = audit.artifact("metrics"), audit.artifact("page")
    steps.features(audit.text, audit.artifact("resolved"), audit.artifact("data"), audit.artifact("numbers"))
    data, reference = audit.artifact("data"), audit.artifact("reference")
    steps.train(audit.params, data, reference, audit.artifact("trained"), without=revoked)
    given, after = (audit.params, data, revoked, audit.artifact("leakage"), *shown), audit.artifact("model")
    steps.attack(*given, before=None, after=after, reference=reference)
    steps.reaudit(audit.params, certificate, audit.artifact("leakage"), audit.run)
