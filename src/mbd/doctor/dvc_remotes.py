"""The DVC repository of this folder and its remotes. Run as a module by `mbd doctor`: DVC takes a second to load."""

import os
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from mbd.doctor.finding import ANSWER_SECONDS, CheckState, DoctorCheck, DoctorFinding, print_findings, run_checks
from mbd.errors import MissingExtraError
from mbd.remote_errors import ErrorKind, classify_error
from mbd.urls import without_credentials

_PORTS = {"http": 80, "https": 443, "webdav": 80, "webdavs": 443, "ssh": 22}
_TO_DO = {
    ErrorKind.CREDENTIALS: "set credentials that may read it (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
    ErrorKind.UNREACHABLE: "check the address (`dvc remote list`), the network and any firewall between",
    ErrorKind.NO_BUCKET: "make the bucket, or correct the address with `dvc remote modify`",
}


def repository() -> Iterator[DoctorFinding]:
    """Look at the repository, then at all its remotes at once."""
    try:
        from dvc.exceptions import DvcException, NotDvcRepoError  # noqa: PLC0415
        from dvc.repo import Repo  # noqa: PLC0415
    except ImportError:
        hint = MissingExtraError("DVC", "data", "dvc").hint
        yield DoctorFinding("DVC", CheckState.NOT_CONFIGURED, "dvc is not installed", hint)
        return
    try:
        repo = Repo()
    except NotDvcRepoError:
        yield DoctorFinding(
            "DVC", CheckState.NOT_CONFIGURED, "this folder is in no DVC repository", "`git init && dvc init`"
        )
        return
    except DvcException as error:
        yield DoctorFinding("DVC", CheckState.FAILED, without_credentials(str(error)), "correct .dvc/config")
        return
    yield DoctorFinding("DVC", CheckState.OK, f"repository at {repo.root_dir}")
    remotes = dict(repo.config["remote"])
    if not remotes:
        yield DoctorFinding(
            "DVC remote", CheckState.NOT_CONFIGURED, "there is none", "`dvc remote add --default NAME URL`"
        )
    yield from run_checks(
        {f"DVC remote {name}": DoctorCheck(partial(_remote, repo, name, options)) for name, options in remotes.items()}
    )


def _remote(repo: Any, name: str, options: Mapping[str, Any]) -> Iterator[DoctorFinding]:  # noqa: ANN401 -- DVC has no types
    title, url = f"DVC remote {name}", without_credentials(str(options["url"]))
    try:
        # DVC would try again for ten seconds where no server listens.
        _connect(str(options.get("endpointurl") or options["url"]))
        remote = repo.cloud.get_remote(name)
        remote.fs.ls(remote.path)
    except Exception as error:  # each kind of storage raises its own
        yield _judge(title, url, error, local="://" not in url)
    else:
        yield DoctorFinding(title, CheckState.OK, f"{url} can be read")


def _judge(title: str, url: str, error: Exception, *, local: bool) -> DoctorFinding:
    kind, reason = classify_error(error)
    if kind is ErrorKind.NOT_THERE:
        if local:
            return DoctorFinding(title, CheckState.WARNING, f"{url} is not there", "mount it, or `dvc push` makes it")
        return DoctorFinding(title, CheckState.OK, f"{url} can be reached, nothing has been pushed to it")
    return DoctorFinding(
        title, CheckState.FAILED, f"{url}: {reason}", _TO_DO.get(kind, "`dvc remote list` shows its settings")
    )


def _connect(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in _PORTS and parts.hostname:
        port = parts.port or _PORTS[parts.scheme]
        socket.create_connection((parts.hostname, port), timeout=ANSWER_SECONDS).close()


if __name__ == "__main__":
    print_findings(list(repository()))
    os._exit(0)  # a remote that hangs would keep DVC's threads, and so this process, alive
