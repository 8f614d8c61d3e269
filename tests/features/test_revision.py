"""FeatureSets of a revision: a real git repository, real DVC, a folder as its remote."""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mbd import git
from mbd.cli.steps import features_command as command
from mbd.errors import DataError, MbdError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.revision import fetch_revision
from mbd.files import sha256_file
from mbd.steps import features
from tests.command import run_mbd
from tests.digests import path_digest
from tests.features.dvc_repository import ADDED, STAGE, SampleRepository, isolated
from tests.http_servers import in_background
from tests.refusals import refused

PASSWORD = "s3cret%2Fword"


@dataclass(frozen=True)
class RevisionOrigin:
    """A repository whose data is in its remote only, and a bare copy of its history as a server would have it."""

    repository: SampleRepository
    bare: Path
    remote: Path
    first: tuple[str, str]
    second: tuple[str, str]
    step_record: object
    folder_digest: str

    def stored(self, record: str, path: str) -> Path:
        """Return the file of the remote with the content (of a folder: the listing) of `path` as of a DVC record."""
        tree = yaml.safe_load(self.repository.git("show", record))
        outs = tree["stages"]["features"]["outs"] if "stages" in tree else tree["outs"]
        known = {out["path"]: out["md5"] for out in outs}
        if path not in known:
            listing = json.loads(self._object(known[f"{STAGE}/splits"]).read_text())
            known |= {f"{STAGE}/splits/{entry['relpath']}": entry["md5"] for entry in listing}
        return self._object(known[path])

    def _object(self, md5: str) -> Path:
        return self.remote / "files" / "md5" / md5[:2] / md5[2:]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory, quick: Path) -> Iterator[RevisionOrigin]:
    base = tmp_path_factory.mktemp("origin")
    environment = isolated(base, quick)
    repository = SampleRepository.make(base / "repository", environment, str(base / "remote"))
    first = repository.commit(seed=1)
    repository.git("tag", "v1")
    repository.git("checkout", "--quiet", "-b", "more-data")
    second = repository.commit(seed=2)
    step_record = json.loads((repository.folder / STAGE / "step.json").read_text())
    repository.commit(seed=3, add=True)
    (repository.folder / STAGE / ".gitignore").unlink()
    folder_digest = path_digest(repository.folder / STAGE)
    repository.git("checkout", "--quiet", "main")
    repository.dvc("push", "--quiet", "--all-branches")
    repository.forget_cache()
    bare = base / "bare.git"
    repository.git("clone", "--quiet", "--bare", str(repository.folder), str(bare))
    repository.git("--git-dir", str(bare), "update-server-info")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment.items():
            patch.setenv(key, value)
        yield RevisionOrigin(repository, bare, base / "remote", first, second, step_record, folder_digest)


@pytest.fixture
def fresh_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DVC remembers the listings of folders it has seen; here it has seen none."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))


def test_each_revision_brings_its_own_data(origin: RevisionOrigin, tmp_path: Path) -> None:
    for rev, (commit, digest) in {"v1": origin.first, "more-data~1": origin.second}.items():
        revision = fetch_revision(str(origin.repository.folder), rev, STAGE, tmp_path / rev)
        assert (revision.commit, revision.manifest_digest) == (commit, digest)
        assert sha256_file(tmp_path / rev / "manifest.json") == digest
        assert FeatureSet.open(tmp_path / rev, verify=True).manifest.provenance["seed"] in {"1", "2"}
    assert origin.first[1] != origin.second[1]


@pytest.mark.parametrize("rev", ["HEAD", "main", "v1", "short"])
def test_a_revision_may_be_named_in_any_way_git_knows(origin: RevisionOrigin, tmp_path: Path, rev: str) -> None:
    name = origin.first[0][:8] if rev == "short" else rev
    revision = fetch_revision(str(origin.bare), name, f"/{STAGE}/", tmp_path / "out")
    assert revision.commit == origin.first[0]
    assert revision.path == STAGE


def test_a_branch_that_only_the_server_has_is_found(origin: RevisionOrigin, tmp_path: Path) -> None:
    revision = fetch_revision(origin.bare.as_uri(), "more-data", ADDED, tmp_path / "out")
    assert FeatureSet.open(tmp_path / "out").manifest.provenance["seed"] == "3"
    assert revision.repository == origin.bare.as_uri()


def test_the_step_writes_the_bytes_of_the_origin_and_its_own_record(origin: RevisionOrigin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = features.run_revision(out, str(origin.bare), "more-data~1", STAGE)
    assert asdict(summary) == json.loads((out / "summary.json").read_text())
    assert path_digest(out) == origin.folder_digest
    record = json.loads((out / "step.json").read_text())
    assert record["step"] == "features"
    assert record["inputs"] == {
        "revision": {
            "repository": str(origin.bare),
            "commit": origin.second[0],
            "path": STAGE,
            "digest": origin.second[1],
            "step": origin.step_record,
        }
    }
    features.run_revision(out, str(origin.bare), "v1", STAGE)
    assert sha256_file(out / "manifest.json") == origin.first[1]


@pytest.mark.usefixtures("fresh_index")
def test_an_unpushed_revision_is_copied_from_the_cache_of_a_local_repository(
    origin: RevisionOrigin, tmp_path: Path
) -> None:
    local = SampleRepository(tmp_path / "local", origin.repository.environment)
    shutil.copytree(origin.repository.folder, local.folder, symlinks=True)
    _, digest = local.commit(seed=4)
    with (local.folder / ".dvc" / "config").open("a") as config:
        config.write("[cache]\n    type = symlink\n")
    local.git("commit", "--quiet", "--all", "--message", "links")
    assert fetch_revision(str(local.folder), "HEAD", STAGE, tmp_path / "out").manifest_digest == digest
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_symlink()]
    with pytest.raises(DataError, match="neither in the DVC remote nor in the cache") as caught:
        fetch_revision(local.folder.as_uri(), "HEAD", STAGE, tmp_path / "other")
    assert "dvc push" in str(caught.value)


@pytest.mark.parametrize(
    ("repository", "rev", "path", "remote", "error", "message"),
    [
        ("/nowhere", "HEAD", STAGE, None, DataError, "cannot be reached"),
        ("http://127.0.0.1:9/x.git", "HEAD", STAGE, None, DataError, "cannot be reached"),
        ("https://user:half/word@host/x.git", "HEAD", STAGE, None, UsageError, "URL of the repository is not valid"),
        (None, "no-such-branch", STAGE, None, UsageError, "no such revision"),
        (None, "--upload-pack=x", STAGE, None, UsageError, "no such revision"),
        (None, "HEAD", "build/nothing", None, DataError, "the path is not in"),
        (None, "HEAD", "../outside", None, DataError, "the path is not in"),
        (None, "HEAD", ADDED, None, DataError, "the path is not in"),
        (None, "HEAD", f"{STAGE}/splits", None, DataError, "is not a FeatureSet"),
        (None, "HEAD", f"{STAGE}/summary.json", None, DataError, "is not a FeatureSet"),
        (None, "HEAD", STAGE, "elsewhere", UsageError, "no DVC remote of that name"),
    ],
)
def test_what_cannot_be_fetched_says_why_and_leaves_nothing(
    origin: RevisionOrigin,
    tmp_path: Path,
    repository: str | None,
    rev: str,
    path: str,
    remote: str | None,
    error: type[MbdError],
    message: str,
) -> None:
    with pytest.raises(error, match=message) as caught:
        features.run_revision(tmp_path / "out", repository or str(origin.bare), rev, path, remote)
    assert caught.value.hint
    assert "half" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fresh_index")
@pytest.mark.parametrize(
    ("record", "path", "part"),
    [
        ("v1:dvc.lock", STAGE, f"{STAGE}/manifest.json"),
        ("v1:dvc.lock", STAGE, f"{STAGE}/splits"),
        (f"more-data:{ADDED}.dvc", ADDED, Path(ADDED).name),
    ],
)
def test_data_missing_from_the_remote_is_its_own_error(
    origin: RevisionOrigin, tmp_path: Path, record: str, path: str, part: str
) -> None:
    rev, stored = record.partition(":")[0], origin.stored(record, part)
    stored.rename(tmp_path / "away")
    try:
        with pytest.raises(DataError, match="neither in the DVC remote nor in the cache"):
            fetch_revision(str(origin.bare), rev, path, tmp_path / "out")
    finally:
        (tmp_path / "away").rename(stored)


@pytest.mark.parametrize(
    ("part", "message"),
    [("manifest.json", "not the one that was committed"), ("splits/test/audio.safetensors", "is damaged")],
)
def test_data_changed_in_the_remote_is_noticed(origin: RevisionOrigin, tmp_path: Path, part: str, message: str) -> None:
    stored = origin.stored("v1:dvc.lock", f"{STAGE}/{part}")
    content = stored.read_bytes()
    stored.chmod(0o644)
    stored.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    try:
        with refused(DataError, match=message, file=f"{STAGE}/{part}"):
            features.run_revision(tmp_path / "out", str(origin.bare), "v1", STAGE)
        assert not list(tmp_path.iterdir())
    finally:
        stored.write_bytes(content)


def test_credentials_of_the_url_are_used_but_written_nowhere(origin: RevisionOrigin, tmp_path: Path) -> None:
    with _server(origin.bare.parent) as address:
        url = f"http://user:{PASSWORD}@{address}/bare.git"
        features.run_revision(tmp_path / "out", url, "HEAD", STAGE)
        record = json.loads((tmp_path / "out" / "step.json").read_text())
        assert record["inputs"]["revision"]["repository"] == f"http://{address}/bare.git"
        git.clone(url, tmp_path / "clone")
        written = [file for file in tmp_path.rglob("*") if file.is_file() and b"s3cret" in file.read_bytes()]
        assert written == []


@pytest.mark.parametrize("user", ["", "user:wr0ng@"])
def test_credentials_that_git_refuses_are_not_repeated(origin: RevisionOrigin, tmp_path: Path, user: str) -> None:
    with (
        _server(origin.bare.parent) as address,
        pytest.raises(DataError, match="the git repository refused the credentials") as caught,
    ):
        fetch_revision(f"http://{user}{address}/bare.git", "HEAD", STAGE, tmp_path / "out")
    assert "wr0ng" not in str(caught.value)
    assert address in str(caught.value)


def test_the_command_line_fetches_a_revision(origin: RevisionOrigin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--dvc-repo", origin.bare, "--dvc-rev", "v1", "--dvc-path", STAGE, "--out", out)
    done = run_mbd("features", *options)
    assert done.exit_code == 0, done.stderr
    assert "ridge on test" in done.stdout
    assert sha256_file(out / "manifest.json") == origin.first[1]


@pytest.mark.parametrize(
    "options", [["--dvc-repo", "/somewhere"], ["--dvc-rev", "main"], ["--dvc-path", STAGE], ["--dvc-remote", "store"]]
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(command, [*options, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("--dvc-")
    assert not list(tmp_path.iterdir())


def test_a_dvc_repository_may_lie_below_the_top_of_a_git_repository(origin: RevisionOrigin, tmp_path: Path) -> None:
    top = SampleRepository(tmp_path / "top", origin.repository.environment)
    project = SampleRepository(top.folder / "project", top.environment)
    shutil.copytree(origin.repository.folder, project.folder, ignore=shutil.ignore_patterns(".git"))
    top.git("init", "--quiet", "--initial-branch=main")
    top.git("add", "--all")
    top.git("commit", "--quiet", "--message", "all in one")
    for name, repository in {"path": str(top.folder), "url": top.folder.as_uri()}.items():
        revision = fetch_revision(repository, "HEAD", f"project/{STAGE}", tmp_path / name)
        assert revision.manifest_digest == origin.first[1]


class _PasswordHandler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        login = base64.b64encode(b"user:s3cret/word").decode()
        if self.headers.get("Authorization") == f"Basic {login}":
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP to those who know the password."""
    handler = partial(_PasswordHandler, directory=str(folder))
    with in_background(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"127.0.0.1:{server.server_port}"
