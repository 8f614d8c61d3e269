"""S3 by Ceph's RADOS Gateway: one monitor, one OSD in memory, one gateway, nothing but loopback.

It is a real S3: it checks signatures, keeps Object Lock and decides conditional puts, which stand-ins do not.
"""

import json
import secrets
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.servers.process import answers, free_port, need, running, wait_until

_CONFIG = """
[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{mon_port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr2 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
osd_objectstore = memstore
osd_crush_update_on_start = false
osd_class_update_on_start = false
run_dir = {folder}/run
pid_file = {folder}/run/$name.pid
admin_socket =
log_file = {folder}/log/$name.log
crash_dir = {folder}/crash
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint={address}
rgw_thread_pool_size = 32
"""

KEYS = secrets.token_hex(10).upper(), secrets.token_hex(20)
"""access key and secret key of the user of every server of this process"""
_NOT_SENT = "problem getting command descriptions from mon"
"""what `ceph` says if a monitor that is still starting refused it before it could send its command"""
_ATTEMPTS = 10


@dataclass(frozen=True)
class S3:
    """A running S3 server and the keys of a user."""

    endpoint: str
    access_key: str
    secret_key: str

    @property
    def environment(self) -> dict[str, str]:
        """The credentials as every S3 client reads them from the environment."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """Return a boto3 client of that user."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )


@contextmanager
def rados_gateway(folder: Path, address: str | None = None) -> Iterator[S3]:
    """Run the three daemons below `folder`; on leaving, the gateway stops first and the monitor last.

    The gateway listens on `address` (HOST:PORT), or on a free port of loopback.
    """
    need("monmaptool", "ceph-mon", "ceph-osd", "ceph", "radosgw", "radosgw-admin")
    for name in ("run", "log", "crash", "mon", "osd", "rgw"):
        (folder / name).mkdir(parents=True)
    fsid, mon_port, address = str(uuid.uuid4()), free_port(), address or f"127.0.0.1:{free_port()}"
    config, log = folder / "ceph.conf", folder / "daemons.log"
    config.write_text(_CONFIG.format(fsid=fsid, folder=folder, mon_port=mon_port, address=address))
    ceph = ["--conf", str(config)]

    def call(*command: str) -> str:
        for _ in range(_ATTEMPTS):
            done = subprocess.run([*command, *ceph], capture_output=True, text=True, timeout=60, check=False)
            if _NOT_SENT not in done.stderr:
                break
            time.sleep(0.5)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout

    def osd_is_up() -> bool:
        return bool(json.loads(call("ceph", "osd", "stat", "--format", "json"))["num_up_osds"])

    monmap, osd_uuid = str(folder / "monmap"), str(uuid.uuid4())
    call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{mon_port}]", monmap)
    call("ceph-mon", "--mkfs", "--id", "a", "--monmap", monmap)
    with running(["ceph-mon", "-f", "--id", "a", *ceph], log):
        osd = call("ceph", "--connect-timeout", "30", "osd", "new", osd_uuid).strip()
        # A starting OSD may ask the monitor for its place in CRUSH before it knows the cluster's id, and then ends
        # with "wrong fsid" (one start in four): it is given its place here and does not ask.
        call("ceph", "osd", "crush", "add", f"osd.{osd}", "1", "root=default", "host=localhost")
        call("ceph-osd", "--mkfs", "--id", osd, "--osd-uuid", osd_uuid)
        with running(["ceph-osd", "-f", "--id", osd, *ceph], log) as osd_process:
            wait_until(osd_is_up, osd_process, log)
            with running(["radosgw", "-f", "--name", "client.rgw", *ceph], log) as gateway:
                endpoint = f"http://{address}"
                wait_until(lambda: answers(endpoint), gateway, log)
                s3 = S3(endpoint, *KEYS)
                user = ["--uid", "tests", "--display-name", "tests"]
                keys = ["--access-key", s3.access_key, "--secret-key", s3.secret_key]
                call("radosgw-admin", "user", "create", *user, *keys)
                yield s3
