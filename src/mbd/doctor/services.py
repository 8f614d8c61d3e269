"""What the parameters name: object store, signing keys, Pushgateway, Kubeflow host."""

import http.client
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mbd.doctor.finding import ANSWER_SECONDS, CheckState, DoctorFinding
from mbd.errors import MbdError, MissingExtraError
from mbd.params.certificate import CertificateSettings
from mbd.params.operations import StoreSettings
from mbd.remote_errors import ErrorKind, classify_error
from mbd.storage import folder_of, open_store
from mbd.trust.keys import load_signer
from mbd.trust.trust_file import read_trust
from mbd.verify.verdict import fingerprint

_STORE_TO_DO = {
    ErrorKind.CREDENTIALS: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile) with rights on the bucket",
    ErrorKind.UNREACHABLE: "check store.endpoint, the network and any firewall between",
    ErrorKind.NO_BUCKET: "make the bucket, or correct store.url",
    ErrorKind.CLOCK: "set the clock of this machine",
}


def store(params: StoreSettings) -> Iterator[DoctorFinding]:
    """Check whether certificates can be published."""
    if params.url.startswith("file://"):
        yield _folder(folder_of(params.url))
        return
    if not params.url.startswith("s3://"):
        yield _other(params)
        return
    shown = f"{params.url} at {params.endpoint or 'Amazon S3'}"
    try:
        _ask_bucket(params)
    except ImportError:
        hint = MissingExtraError("an S3 store", "data", "boto3").hint
        yield DoctorFinding("store", CheckState.FAILED, f"{shown} needs boto3, which is not installed", hint)
    except Exception as error:  # botocore raises many kinds
        kind, reason = classify_error(error, bucket_asked=True)
        to_do = _STORE_TO_DO.get(kind, "see store.* in `mbd params`")
        yield DoctorFinding("store", CheckState.FAILED, f"{shown}: {reason}", to_do)
    else:
        yield DoctorFinding("store", CheckState.OK, f"{shown} can be reached with the credentials")


def keys(params: CertificateSettings) -> Iterator[DoctorFinding]:
    """Check whether the signing keys in files can be read and belong to the trust file."""
    trust_file = Path(params.trust)
    if not trust_file.exists():
        to_do = "where certificates are signed, `mbd keys new --if-none` makes keys and trust file"
        yield DoctorFinding("keys", CheckState.NOT_CONFIGURED, f"there is no trust file {trust_file}", to_do)
        return
    try:
        trust = read_trust(trust_file)
        files = [uri for uri in (*params.signers, params.log_signer) if uri.startswith("file:")]
        for uri in files:
            load_signer(uri, trust)
    except MbdError as error:
        yield DoctorFinding("keys", CheckState.FAILED, f"{error.problem} ({error.file or trust_file})", error.hint)
        return
    found = f"{len(files)} keys in files; trust file {trust_file}, fingerprint {fingerprint(trust.digest)}"
    yield DoctorFinding("keys", CheckState.OK, found)


def _other(params: StoreSettings) -> DoctorFinding:
    """Return whether a store that an installed package provides can be listed."""
    try:
        next(open_store(params.url, params).list(), None)
    except Exception as error:  # a plug-in may raise anything
        to_do = (error.hint if isinstance(error, MbdError) else None) or "see store.* in `mbd params`"
        return DoctorFinding("store", CheckState.FAILED, f"{params.url}: {error}", to_do)
    return DoctorFinding("store", CheckState.OK, f"{params.url} can be listed")


def _folder(folder: Path) -> DoctorFinding:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        to_do = "set store.url to a folder that can be written to"
        return DoctorFinding("store", CheckState.FAILED, f"{existing} cannot be written to: {error.strerror}", to_do)
    return DoctorFinding(
        "store", CheckState.OK, f"{folder} can be written to" + ("" if folder.exists() else ", not made yet")
    )


def _ask_bucket(params: StoreSettings) -> None:
    import boto3  # noqa: PLC0415 -- loaded late
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import ClientError  # noqa: PLC0415

    name, seconds = urlsplit(params.url).netloc, min(params.timeout_seconds, ANSWER_SECONDS)
    config = Config(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path" if params.endpoint else "auto"},
    )
    client = boto3.Session().client("s3", endpoint_url=params.endpoint, config=config)
    try:
        client.head_bucket(Bucket=name)
        return
    except ClientError as error:
        if error.response["Error"]["Code"] != "403":
            raise
    # The answer to a refused HEAD has no body and so no reason; the one to a refused GET has.
    client.list_objects_v2(Bucket=name, MaxKeys=1)


def pushgateway(url: str | None) -> Iterator[DoctorFinding]:
    """Check whether the Pushgateway is ready."""
    if url is None:
        to_do = "set monitoring.pushgateway to its URL"
        yield DoctorFinding("Pushgateway", CheckState.NOT_CONFIGURED, "no metrics are pushed", to_do)
        return
    answer = _get(f"{url.rstrip('/')}/-/ready")
    if isinstance(answer, str):
        to_do = "check monitoring.pushgateway, and that the Pushgateway runs"
        yield DoctorFinding("Pushgateway", CheckState.FAILED, f"{url}: {answer}", to_do)
    elif b"Prometheus Server" in answer:
        to_do = "set monitoring.pushgateway to the Pushgateway (port 9091 by default, not 9090)"
        yield DoctorFinding(
            "Pushgateway", CheckState.FAILED, f"{url} is a Prometheus server, which takes no pushes", to_do
        )
    else:
        yield DoctorFinding("Pushgateway", CheckState.OK, f"{url} is ready")


def kubeflow(host: str | None) -> Iterator[DoctorFinding]:
    """Check whether the API of Kubeflow Pipelines answers."""
    if host is None:
        to_do = "set platform.kubeflow_host to its URL"
        yield DoctorFinding("Kubeflow", CheckState.NOT_CONFIGURED, "no pipelines are submitted", to_do)
        return
    answer = _get(f"{host.rstrip('/')}/apis/v2beta1/healthz")
    if isinstance(answer, str):
        login = answer.startswith(("401", "403"))
        to_do = "log in to Kubeflow" if login else "check platform.kubeflow_host (it often ends in /pipeline)"
        yield DoctorFinding("Kubeflow", CheckState.WARNING if login else CheckState.FAILED, f"{host}: {answer}", to_do)
        return
    health = _json(answer)
    if isinstance(health, dict):
        users = "several users" if health.get("multi_user") else "one user"
        yield DoctorFinding("Kubeflow", CheckState.OK, f"{host} answers, set up for {users}")
    else:
        to_do = "log in, or give the URL of the pipeline API itself"
        yield DoctorFinding(
            "Kubeflow", CheckState.WARNING, f"{host} answers with a page (a login?), not with its health", to_do
        )


def _get(url: str) -> bytes | str:
    """Return what a GET brings, or the reason in words if it brings nothing."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return "not an http:// or https:// address"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:  # noqa: S310 -- checked above
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


def _json(content: bytes) -> Any:  # noqa: ANN401 -- looked at by the caller
    try:
        return json.loads(content)
    except ValueError:
        return None
