"""Where a certificate's model was made: from environment variables or, for the code, from git.

MBD_DVC_REVISION    revision of the DVC repository that the data came from
MBD_GIT_COMMIT      commit of the code; without it, that of the working folder
MBD_IMAGE_DIGEST    digest of the container image (sha256:…)
MBD_RUN_ID          id of the pipeline run
"""

import re
import subprocess
from collections.abc import Mapping

from mbd.errors import MbdError, UsageError
from mbd.git import git

_NAMES = {
    "dvc_revision": "MBD_DVC_REVISION",
    "git_commit": "MBD_GIT_COMMIT",
    "image_digest": "MBD_IMAGE_DIGEST",
    "run_id": "MBD_RUN_ID",
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._:/+-]{0,254}")
_SECONDS = 10.0


def provenance(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return what is known of where this runs; what is not known is None."""
    found = {key: environment.get(name) or None for key, name in _NAMES.items()}
    for key, value in found.items():
        if value is not None and not _PLAIN.fullmatch(value):
            raise UsageError(
                "an environment variable holds a value that cannot be published in a certificate",
                key=_NAMES[key],
                hint="letters, digits and @ . _ : / + - only",
            )
    return found | {"git_commit": found["git_commit"] or _commit_here()}


def _commit_here() -> str | None:
    """Return the commit of the working folder, marked if files have been changed since."""
    try:
        commit = git("rev-parse", "--verify", "HEAD", timeout=_SECONDS)
        if commit.returncode:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", timeout=_SECONDS)
    except (MbdError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("" if changed.returncode == 0 and not changed.stdout.strip() else "-dirty")
