"""S3 by the Versity gateway over a folder: it compares before it writes in buckets with versions and Object Lock, too.

Unlike Amazon's, it takes a name whose object is hidden by a delete marker for one that is taken.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

from tests.integration.servers.process import answers, free_port, need, running, wait_until
from tests.integration.servers.rgw import KEYS, S3

_ADMINISTRATOR = ("administrator", "of-the-gateway")


@contextmanager
def versity_gateway(folder: Path) -> Iterator[S3]:
    """Run the gateway below `folder`, with a user to whom policies apply."""
    if which("versitygw") is None and which("go") is None:
        pytest.skip("the Versity gateway is compiled by Go, which is not installed")
    need("versitygw")
    for name in ("buckets", "versions", "users"):
        (folder / name).mkdir(parents=True)
    address, log = f"127.0.0.1:{free_port()}", folder / "gateway.log"
    s3 = S3(f"http://{address}", *KEYS)
    rights = ["--access", _ADMINISTRATOR[0], "--secret", _ADMINISTRATOR[1]]
    gateway = ["versitygw", *rights, "--port", address, "--health", "/health", "--iam-dir", str(folder / "users")]
    with running(
        [*gateway, "--quiet", "posix", "--versioning-dir", folder / "versions", folder / "buckets"], log
    ) as process:
        wait_until(lambda: answers(f"{s3.endpoint}/health"), process, log)
        user = ["create-user", "--access", s3.access_key, "--secret", s3.secret_key, "--role", "userplus"]
        subprocess.run(["versitygw", "admin", *rights, "--endpoint-url", s3.endpoint, *user], check=True)
        yield s3
