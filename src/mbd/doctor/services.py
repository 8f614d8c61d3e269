"""What the parameters and DVC name: remotes, object store, signing keys, Pushgateway, Kubeflow host."""

import http.client
import json
import os
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mbd.doctor.installation import ANSWER_SECONDS, FAILED, NOT_CONFIGURED, OK, WARNING, DoctorFinding
from mbd.errors import MbdError, MissingExtraError
from mbd.monitoring.kubeflow_runs import request_kubeflow
from mbd.params.operations import CertificateSettings, StoreSettings
from mbd.params.platform import KUBEFLOW_TOKEN
from mbd.remote_errors import ErrorKind, classify_error
from mbd.storage import folder_of, open_store
from mbd.trust.keys import load_signer
from mbd.trust.trust_file import read_trust
from mbd.urls import without_credentials
from mbd.verifier.verdict import fingerprint

_PORTS = {"http": 80, "https": 443, "webdav": 80, "webdavs": 443, "ssh": 22}
_REMOTE_TO_DO = {
    ErrorKind.CREDENTIALS: "set credentials that may read it (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
    ErrorKind.UNREACHABLE: "check the address (`dvc remote list`), the network and any firewall between",
    ErrorKind.NO_BUCKET: "create the bucket, or correct the address with `dvc remote modify`",
}


def check_dvc() -> Iterator[DoctorFinding]:
    """Check the DVC repository of this folder and its remotes."""
    try:
        from dvc.exceptions import DvcException, NotDvcRepoError  # noqa: PLC0415 -- takes a second
        from dvc.repo import Repo  # noqa: PLC0415
    except ImportError:
        yield DoctorFinding("DVC", NOT_CONFIGURED, "dvc is not installed", MissingExtraError("dvc").hint)
        return
    try:
        repo = Repo()
    except NotDvcRepoError:
        yield DoctorFinding("DVC", NOT_CONFIGURED, "this folder is in no DVC repository", "`git init && dvc init`")
        return
    except DvcException as error:
        yield DoctorFinding("DVC", FAILED, without_credentials(str(error)), "correct .dvc/config")
        return
    yield DoctorFinding("DVC", OK, f"repository at {repo.root_dir}")
    remotes = dict(repo.config["remote"])
    if not remotes:
        yield DoctorFinding("DVC remote", NOT_CONFIGURED, "there is none", "`dvc remote add --default NAME URL`")
    os.environ.setdefault("AWS_MAX_ATTEMPTS", "1")  # a bucket that does not answer is a finding at once
    for name, options in remotes.items():
        yield _check_remote(repo, name, options)


def _check_remote(repo: Any, name: str, options: Mapping[str, Any]) -> DoctorFinding:  # noqa: ANN401 -- DVC has no types
    title, url = f"DVC remote {name}", without_credentials(str(options["url"]))
    try:
        _connect(str(options.get("endpointurl") or options["url"]))  # DVC would try for ten seconds
        if urlsplit(url).scheme in {"s3", "http", "https"}:
            repo.config["remote"][name] |= {"connect_timeout": ANSWER_SECONDS, "read_timeout": ANSWER_SECONDS}
        remote = repo.cloud.get_remote(name)
        if hasattr(remote.fs.fs, "retries"):
            remote.fs.fs.retries = 1
        remote.fs.ls(remote.path)
    except Exception as error:  # each kind of storage raises its own
        kind, reason = classify_error(error)
        if kind is not ErrorKind.NOT_THERE:
            to_do = _REMOTE_TO_DO.get(kind, "`dvc remote list` shows its settings")
            return DoctorFinding(title, FAILED, f"{url}: {reason}", to_do)
        if "://" not in url:
            return DoctorFinding(title, WARNING, f"{url} is not there", "mount it, or `dvc push` makes it")
        return DoctorFinding(title, OK, f"{url} can be reached, nothing has been pushed to it")
    return DoctorFinding(title, OK, f"{url} can be read")


def _connect(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in _PORTS and parts.hostname:
        port = parts.port or _PORTS[parts.scheme]
        socket.create_connection((parts.hostname, port), timeout=ANSWER_SECONDS).close()


def check_store(settings: StoreSettings) -> Iterator[DoctorFinding]:
    """Check whether a folder can be written to, and any other store be listed."""
    if settings.url.startswith("file://"):
        yield _check_folder("store", folder_of(settings.url), "store.url")
        return
    seconds = min(settings.timeout_seconds, ANSWER_SECONDS)
    shown = f"{settings.url} at {settings.endpoint}" if settings.endpoint else settings.url
    try:
        quick = settings.model_copy(update={"timeout_seconds": seconds, "retries": 0})
        next(open_store(settings.url, quick).list(), None)
    except Exception as error:  # a plug-in may raise anything
        problem, hint = (error.problem, error.hint) if isinstance(error, MbdError) else (error, None)
        yield DoctorFinding("store", FAILED, f"{shown}: {problem}", hint or "see store.* in `mbd params`")
    else:
        yield DoctorFinding("store", OK, f"{shown} can be listed with the credentials")


def check_keys(params: CertificateSettings) -> Iterator[DoctorFinding]:
    """Check whether the signing keys in files can be read and belong to the trust file."""
    trust_file = Path(params.trust)
    if not trust_file.exists():
        to_do = "where certificates are signed, `mbd keys new --if-none` makes keys and trust file"
        yield DoctorFinding("keys", NOT_CONFIGURED, f"there is no trust file {trust_file}", to_do)
        return
    try:
        trust = read_trust(trust_file)
        files = [uri for uri in (*params.signers, params.log_signer) if uri.startswith("file:")]
        for uri in files:
            load_signer(uri, trust)
    except MbdError as error:
        yield DoctorFinding("keys", FAILED, f"{error.problem} ({error.file or trust_file})", error.hint)
        return
    found = f"{len(files)} keys in files; trust file {trust_file}, fingerprint {fingerprint(trust.digest)}"
    yield DoctorFinding("keys", OK, found)


def check_state(ledgers: str | None) -> Iterator[DoctorFinding]:
    """Check whether the folder of the budget ledgers can be written to."""
    if ledgers is not None:
        yield _check_folder("state", Path(ledgers), "deletion.ledgers")


def _check_folder(name: str, folder: Path, key: str) -> DoctorFinding:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        to_do = f"set {key} to a folder that user {os.getuid()} can write to, or give it this one"
        return DoctorFinding(name, FAILED, f"{existing} cannot be written to: {error.strerror}", to_do)
    return DoctorFinding(name, OK, f"{folder} can be written to" + ("" if folder.exists() else ", not made yet"))


def check_pushgateway(url: str | None) -> Iterator[DoctorFinding]:
    """Check whether the Pushgateway is ready."""
    if url is None:
        to_do = "set monitoring.pushgateway to its URL"
        yield DoctorFinding("Pushgateway", NOT_CONFIGURED, "no metrics are pushed", to_do)
        return
    answer = _get(f"{url.rstrip('/')}/-/ready")
    if isinstance(answer, str):
        to_do = "check monitoring.pushgateway, and that the Pushgateway runs"
        yield DoctorFinding("Pushgateway", FAILED, f"{url}: {answer}", to_do)
    elif b"Prometheus Server" in answer:
        to_do = "set monitoring.pushgateway to the Pushgateway (port 9091 by default, not 9090)"
        yield DoctorFinding("Pushgateway", FAILED, f"{url} is a Prometheus server, which takes no pushes", to_do)
    else:
        yield DoctorFinding("Pushgateway", OK, f"{url} is ready")


def check_kubeflow(host: str | None) -> Iterator[DoctorFinding]:
    """Check whether the API of Kubeflow Pipelines answers."""
    if host is None:
        to_do = "set platform.kubeflow_host to its URL"
        yield DoctorFinding("Kubeflow", NOT_CONFIGURED, "no pipelines are submitted", to_do)
        return
    answer = _get(f"{host.rstrip('/')}/apis/v2beta1/healthz", request_kubeflow)
    if isinstance(answer, str):
        login = answer.startswith(("401", "403"))
        to_do = "check platform.kubeflow_host (it often ends in /pipeline)"
        to_do = f"set a valid token in {KUBEFLOW_TOKEN}" if login else to_do
        yield DoctorFinding("Kubeflow", WARNING if login else FAILED, f"{host}: {answer}", to_do)
        return
    try:
        health = json.loads(answer)
    except ValueError:
        health = None
    if isinstance(health, dict):
        users = "several users" if health.get("multi_user") else "one user"
        yield DoctorFinding("Kubeflow", OK, f"{host} answers, set up for {users}")
    else:
        to_do = "log in, or give the URL of the pipeline API itself"
        yield DoctorFinding("Kubeflow", WARNING, f"{host} answers with a page (a login?), not with its health", to_do)


def _get(url: str, request: Callable[[str], urllib.request.Request] = urllib.request.Request) -> bytes | str:
    """Return what a GET brings, or the reason in words if it brings nothing."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return "not an http:// or https:// address"
    try:
        with urllib.request.urlopen(request(url), timeout=ANSWER_SECONDS) as response:  # noqa: S310 -- checked above
            content: bytes = response.read(1 << 16)
            return content
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except urllib.error.URLError as error:
        return "no answer in time" if isinstance(error.reason, TimeoutError) else str(error.reason)
    except TimeoutError:
        return "no answer in time"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
