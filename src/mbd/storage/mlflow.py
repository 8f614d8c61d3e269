"""An MLflow model registry beside the store, through MLflow's own client: versions, aliases, and the files of both.

Only files are moved. No flavour of MLflow is loaded, because that runs code that anyone with access to the server could
have left there; what is read are weights, as safetensors or as a `state_dict` of tensors alone. Nothing here is
believed: the log says what was released, and files are compared with it by digest. Tags and aliases are for people and
for serving.

A release is written back in an order in which it can be killed anywhere and run again:

    1. a run of `mlflow.experiment` with the tag of the release     (found again by the tag)
    2. its files, as artifacts of the run
    3. the version of the registered model that names them         (found again by the tag, and by their digests)
    4. the alias
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mbd.errors import DataError, MbdError, UsageError, extras_named
from mbd.files import sha256_file
from mbd.params.platform import MlflowSettings
from mbd.urls import without_credentials

RELEASE = "mbd.release"
"""tag of runs and versions: SHA-256 of the envelope of the release's certificate or registration"""
FOLDER = "model"
_SOURCE = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>[0-9]+)|@(?P<alias>[^/@]+))")
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
}
"""unless the environment says otherwise"""


class MlflowError(MbdError):
    """The MLflow server cannot be reached, or refuses."""


@dataclass(frozen=True)
class Version:
    """A version of a registered model."""

    name: str
    number: str
    location: str
    """where its files are"""
    tags: Mapping[str, str]

    def __str__(self) -> str:
        return f"models:/{self.name}/{self.number}"


@dataclass(frozen=True)
class StoredArtifact:
    """A file at a location of artifacts."""

    location: str
    path: str
    size: int | None

    @property
    def name(self) -> str:
        """Its whole address."""
        return f"{self.location.rstrip('/')}/{self.path}"


@dataclass(frozen=True)
class MlflowRegistry:
    """The server that `mlflow.uri` or the environment names."""

    settings: MlflowSettings

    @property
    def where(self) -> str:
        """The address of the server, without credentials."""
        return without_credentials(self._uri)

    def version(self, source: str) -> Version:
        """Return the version that `models:/NAME/VERSION` or `models:/NAME@ALIAS` names."""
        match = _SOURCE.fullmatch(source)
        if match is None:
            raise UsageError(
                "this is not a version of a registered model",
                key="--from",
                value=source,
                hint="write models:/NAME/VERSION or models:/NAME@ALIAS",
            )
        name, number, alias = match["name"], match["version"], match["alias"]
        with _reported(self.where):
            if number:
                return self._version(self._client.get_model_version(name, number))
            return self._version(self._client.get_model_version_by_alias(name, alias))

    def versions(self) -> list[Version]:
        """Return all versions of the model `mlflow.model`."""
        with _reported(self.where):
            return list(map(self._version, _all(self._client.search_model_versions, _named(self.settings.model))))

    def other_locations(self, versions: Sequence[Version]) -> Iterator[str]:
        """Yield where the runs and logged models lie of the experiments that the versions, and what is pushed, are in.

        Deleted runs count: MLflow keeps their files.
        """
        with _reported(self.where):
            raw = [self._client.get_model_version(version.name, version.number) for version in versions]
            runs = {version.run_id for version in raw if version.run_id}
            experiments = {self._client.get_run(run).info.experiment_id for run in runs}
            own = self._client.get_experiment_by_name(self.settings.experiment)
            for experiment in sorted(experiments | ({own.experiment_id} if own else set())):
                for run in _all(self._client.search_runs, [experiment], run_view_type=_ALL_RUNS):
                    yield run.info.artifact_uri
                for model in _all(self._client.search_logged_models, [experiment]):
                    yield model.artifact_location

    def files(self, location: str, folder: str | None = None) -> Iterator[StoredArtifact]:
        """Yield the files at a location."""
        with _reported(self.where):
            listed = self._repository(location).list_artifacts(folder)
        for file in listed:
            if file.is_dir:
                yield from self.files(location, file.path)
            else:
                yield StoredArtifact(location, file.path, file.file_size)

    def fetch(self, artifact: StoredArtifact, folder: Path) -> Path:
        """Bring a file to a folder; return where it is."""
        if PurePosixPath(artifact.path).is_absolute() or ".." in PurePosixPath(artifact.path).parts:
            raise DataError("the path of an artifact leads out of its folder", file=self.where, value=artifact.path)
        with _reported(self.where):
            return Path(self._repository(artifact.location).download_artifacts(artifact.path, str(folder)))

    def sha256(self, artifact: StoredArtifact) -> str:
        """Return the digest of a file's content."""
        with TemporaryDirectory(prefix="mbd-mlflow-") as folder:
            return sha256_file(self.fetch(artifact, Path(folder)))

    def push(self, folder: Path, tags: Mapping[str, str]) -> Version:
        """Write a folder back as a version with these tags, unless it is there; move the alias to it; return it."""
        name, release = self._model, tags[RELEASE]
        wanted = {file.name: sha256_file(file) for file in folder.iterdir()}
        with _reported(self.where):
            if not self._client.search_registered_models(_named(name)):
                self._client.create_registered_model(name)
        same = [each for each in self.versions() if each.tags.get(RELEASE) == release]
        version = next((each for each in same if self._holds(each, wanted)), None)
        with _reported(self.where):
            version = version or self._create(name, folder, tags)
            self._client.set_registered_model_alias(name, self.settings.alias, version.number)
        return version

    def remove(self, name: str, version: str | None) -> None:
        """Remove a file by its address; that of a version with the version and all its files."""
        with _reported(self.where):
            if version is not None:
                whole = self.version(f"models:/{self._model}/{version}")
                self._client.delete_model_version(self._model, version)
                self._repository(whole.location).delete_artifacts()
            location, _, path = name.rpartition("/")
            repository = self._repository(location)
            if any(file.path == path for file in repository.list_artifacts()):
                repository.delete_artifacts(path)

    def _holds(self, version: Version, wanted: Mapping[str, str]) -> bool:
        """Return whether the files of a version are these: anyone who can write to the server can set its tags."""
        files = {file.path: file for file in self.files(version.location)}
        return set(files) == set(wanted) and all(self.sha256(files[path]) == wanted[path] for path in wanted)

    def _create(self, name: str, folder: Path, tags: Mapping[str, str]) -> Version:
        own = self._client.get_experiment_by_name(self.settings.experiment)
        experiment = own.experiment_id if own else self._client.create_experiment(self.settings.experiment)
        again = self._client.search_runs([experiment], f"tags.`{RELEASE}` = '{tags[RELEASE]}'", max_results=1)
        run = again[0] if again else self._client.create_run(experiment, tags=dict(tags), run_name=name)
        self._client.log_artifacts(run.info.run_id, str(folder), FOLDER)
        self._client.set_terminated(run.info.run_id)
        source = f"{run.info.artifact_uri}/{FOLDER}"
        made = self._client.create_model_version(name, source, run.info.run_id, tags=dict(tags))
        return self._version(made)

    def _version(self, version: Any) -> Version:  # noqa: ANN401 -- a class of MLflow
        location = self._client.get_model_version_download_uri(version.name, version.version)
        return Version(version.name, str(version.version), location, dict(version.tags))

    def _repository(self, location: str) -> Any:  # noqa: ANN401 -- a class of MLflow
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository  # noqa: PLC0415

        return get_artifact_repository(location, tracking_uri=self._uri)

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 -- a class of MLflow
        return _imported().MlflowClient(self._uri)

    @property
    def _model(self) -> str:
        if self.settings.model is None:
            raise UsageError("the registered model is not named", key="mlflow.model", hint="--set mlflow.model=NAME")
        return self.settings.model

    @property
    def _uri(self) -> str:
        uri = self.settings.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise UsageError("there is no MLflow server", key="mlflow.uri", hint="set it, or MLFLOW_TRACKING_URI")
        return uri


_ALL_RUNS = 3
"""ViewType.ALL: deleted ones, too"""


def _named(model: str | None) -> str:
    """Return the filter for a registered model of this name."""
    quoted = (model or "").replace("'", "\\'")
    return f"name='{quoted}'"


def _imported() -> Any:  # noqa: ANN401 -- the package
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with extras_named():
        import mlflow  # noqa: PLC0415 -- takes seconds
    return mlflow


def _all(search: Any, *arguments: Any, **options: Any) -> Iterator[Any]:  # noqa: ANN401 -- of MLflow
    """Yield all pages of a search."""
    token = None
    while True:
        page = search(*arguments, page_token=token, **options)
        yield from page
        token = page.token
        if not token:
            return


@contextmanager
def _reported(where: str) -> Iterator[None]:
    """Within: errors of MLflow's client become errors that say what to do."""
    _imported()
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    try:
        yield
    except MlflowException as error:
        message = without_credentials(str(error.message)).splitlines()[0]
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise DataError(f"MLflow: {message}", file=where) from error
        hint = "mlflow.uri names the server; credentials are taken from the environment, as MLflow does"
        raise MlflowError(f"MLflow: {message}", file=where, hint=hint) from error
    except OSError as error:
        raise MlflowError(f"MLflow: {error}", file=where) from error
