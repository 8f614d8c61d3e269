"""A model that MLflow serves: imported, revoked, written back with its certificate, and its old versions purged."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from safetensors.torch import save_file

from mbd.errors import DataError, MbdError, UsageError
from mbd.files import sha256_file
from mbd.formats.features import Shape
from mbd.formats.files import MODEL, WEIGHTS
from mbd.history.replay import read_history
from mbd.model.examples.late_fusion import LateFusion
from mbd.params import Params, load_params
from mbd.production import models, register
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.steps import features, import_model, purge, train
from mbd.storage import open_store
from mbd.storage.mlflow import RELEASE, MlflowRegistry
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import read_trust
from tests.certificate.authority import key_settings
from tests.integration.servers.mlflow import MlflowServer, mlflow_server
from tests.refusals import refused

pytestmark = pytest.mark.services

NAME, SERVED, DIMS = "sentiment", "served model", {"text": 12, "audio": 6, "visual": 8}
SETTINGS = (
    f"features.source.synthetic.dims={DIMS}".replace("'", ""),
    "features.source.synthetic.rows={train: 300, valid: 80, test: 200, calibration: 80}",
    "model.backbone=mbd.model.examples.late_fusion:LateFusion",
    "model.options={hidden: 8}",
    "training.epochs=2",
    "deletion.method=exact",
    *("evaluation.figures=false", "evaluation.missing_rates=[0.3]", "attacks.figures=false", "attacks.resamples=200"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield found


class Planted:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch planted",)


def logged(client: MlflowClient, folder: Path, name: str) -> Any:
    """Register the files in a folder as a version, as a training of one's own does."""
    run = client.create_run(client.create_experiment(f"training of {name}")).info
    client.log_artifacts(run.run_id, str(folder), "model")
    client.create_registered_model(name)
    return client.create_model_version(name, f"{run.artifact_uri}/model", run.run_id)


def params_of(folder: Path, server: MlflowServer) -> Params:
    own = (f"store.url=file://{folder}/store", f"mlflow.uri={server.url}", f"mlflow.model={SERVED}")
    other = (f"purge.tombstones={folder}/tombstones", f"purge.kfp_root={folder}/kfp")
    return load_params(None, [*SETTINGS, *key_settings(folder), *own, *other])


def test_from_a_version_in_mlflow_to_one_that_never_saw_the_modality(server: MlflowServer, tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", "signer")
    params, client = params_of(tmp_path, server), MlflowClient(server.url)
    url, workspace = params.store.url, tmp_path / "workspace"
    features.run(params, tmp_path / "features")
    (tmp_path / "logged" / "data").mkdir(parents=True)
    torch.manual_seed(0)
    module = LateFusion({m: Shape.vector(d) for m, d in DIMS.items()}, 1, 8)
    torch.save(module.state_dict(), tmp_path / "logged" / "data" / "state_dict.pth")
    (tmp_path / "logged" / "MLmodel").write_text("flavors: {}\n")
    old = logged(client, tmp_path / "logged", SERVED)
    client.set_registered_model_alias(SERVED, params.mlflow.alias, old.version)
    original = sha256_file(tmp_path / "logged" / "data" / "state_dict.pth")

    source = f"models:/{SERVED}@{params.mlflow.alias}"
    import_model.run_from_registry(params, source, None, tmp_path / "features", list(DIMS), workspace / "model")
    train.run(params, tmp_path / "features", workspace / "reference", ("audio",))
    register.run(params, workspace / "model", [workspace / "reference"], NAME, url)
    named = params.model_copy(update={"certificate": params.certificate.model_copy(update={"model": NAME})})
    submit(named, url, NAME, ["audio"])
    worker = Worker(named, RequestStore.open(params, url), url, tmp_path / "features", None, "worker")
    ((done, outcome),) = worker.run()
    assert done.state == "certified", outcome

    history = read_history(open_store(url), read_trust(tmp_path / "keys" / "trust.json"))
    pushed = models.push(named, history, NAME)
    assert models.push(named, history, NAME) == pushed  # there is one version of it
    current = client.get_model_version_by_alias(SERVED, params.mlflow.alias)
    assert (pushed.version, current.version) == (f"models:/{SERVED}/2", "2")
    assert current.tags["mbd.certificate"] == current.tags[RELEASE] == done.certificate
    assert (current.tags["mbd.kind"], current.tags["mbd.log_entry"]) == ("exact", "1")
    registry = MlflowRegistry(params.mlflow)
    files = {one.path: registry.sha256(one) for one in registry.files(current.source)}
    statement = history.certificate(str(done.certificate))
    assert files == {name: statement.digests[name] for name in (WEIGHTS, MODEL)}

    record = purge.run(named, purge.plan(named, None, url, certificate=done.certificate, root=workspace), url).record
    assert record.erasure.claim == "complete", record.erasure.note
    (place,) = (one for one in record.places if one.kind == "MLflow registry")
    assert (place.found, place.removed, place.left, place.gone) == (1, 1, 0, True)
    assert [one.version for one in client.search_model_versions(f"name='{SERVED}'")] == ["2"]
    held = {sha256_file(file) for file in server.artifacts.rglob("*") if file.is_file()}
    assert original not in held
    assert statement.digests[WEIGHTS] in held
    assert not list(server.artifacts.rglob("MLmodel"))


def test_code_in_a_version_is_never_run_and_the_weights_must_be_clear(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params, client = params_of(tmp_path, server), MlflowClient(server.url)
    features.run(params, tmp_path / "features")
    (tmp_path / "logged").mkdir()
    torch.save({"head.weight": Planted()}, tmp_path / "logged" / "model.pth")
    torch.save({}, tmp_path / "logged" / "state_dict.pth")
    version = logged(client, tmp_path / "logged", "planted")
    assert version.version == "1"

    def imported(source: str, file: str | None = None) -> None:
        import_model.run_from_registry(params, source, file, tmp_path / "features", list(DIMS), tmp_path / "model")

    with pytest.raises(DataError, match="more than tensors"):
        imported("models:/planted/1", "model.pth")
    with pytest.raises(UsageError, match="2 files of this version can be its weights"):
        imported("models:/planted/1")
    with refused(UsageError, key="--weights"):
        imported("models:/planted/1", "weights.pth")
    with refused(UsageError, key="--from"):
        imported("runs:/planted/1")
    with pytest.raises(DataError, match=r"MLflow: .*planted.*not found"):
        imported("models:/planted/7")
    assert not (tmp_path / "planted").exists()
    assert not (tmp_path / "model").exists()


def test_a_version_whose_tags_claim_a_release_is_not_believed(server: MlflowServer, tmp_path: Path) -> None:
    named = load_params(None, [f"mlflow.uri={server.url}", "mlflow.model=claimed"])
    client, release = MlflowClient(server.url), "ab" * 32
    folders = {"planted": tmp_path / "planted", "released": tmp_path / "released"}
    for name, folder in folders.items():
        folder.mkdir()
        save_file({"weight": torch.full((3,), float(len(name)))}, folder / WEIGHTS)
    planted = logged(client, folders["planted"], "claimed")
    client.set_model_version_tag("claimed", planted.version, RELEASE, release)
    version = MlflowRegistry(named.mlflow).push(folders["released"], {RELEASE: release})
    assert version.number == "2"
    assert client.get_model_version_by_alias("claimed", named.mlflow.alias).version == "2"


def test_a_server_that_does_not_answer_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    registry = MlflowRegistry(load_params(None, ["mlflow.uri=http://127.0.0.1:9"]).mlflow)
    with pytest.raises(MbdError, match="MLflow: "):
        registry.version("models:/any/1")
