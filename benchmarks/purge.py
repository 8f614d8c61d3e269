"""Claims about a purge of a versioned bucket, on a real S3 server (Ceph's gateway; skipped where it is not installed).

With N objects in the bucket (20,000, or the number given as an argument), all of which must go but a few:

1. listing and removing go by the thousand: N / 1,000 requests each, and for the listing more where the server gives
   short pages (Ceph's are a third full where single files have thousands of versions, for every client);
2. memory does not grow with N: the same purge of N / 10 objects needs at least 0.7 of it;
3. no object is touched that must stay.

Most of the time is the server's: filling the bucket, and removing from it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from mbd.formats.purge import Target
from mbd.params.operations import StoreSettings
from mbd.purge.contents import Targets
from mbd.purge.inventory import remove_all, take_inventory
from mbd.purge.remote_places import BucketPlace
from mbd.storage import open_store

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.integration.servers.rgw import S3, rados_gateway

OBJECTS = 20_000
KEPT = 500
WRITERS = 16
"""threads that fill the bucket"""
FILES = 50
"""different files, each in many versions: what years of pushes and deletions leave"""


def body(number: int) -> bytes:
    return b"%d" % number


def name(number: int) -> str:
    md5 = hashlib.md5(body(number), usedforsecurity=False).hexdigest()
    return f"dvc/files/md5/{md5[:2]}/{md5[2:]}"


def fill(s3: S3, bucket: str, count: int) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=WRITERS, parameter_validation=False),
    )
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    def put(number: int) -> None:
        which = number % FILES if number < count - KEPT else number
        client.put_object(Bucket=bucket, Key=name(which), Body=body(which))

    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(put, range(count)):
            pass


def purge(endpoint: str, bucket: str, count: int) -> None:
    """Purge a bucket and print what it took; runs in a process of its own, whose memory is measured."""
    files = [body(number) for number in range(FILES)]
    targets = Targets(
        Target(
            sha256=hashlib.sha256(content).hexdigest(),
            what="features",
            md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
            size=len(content),
        )
        for content in files
    )
    settings = StoreSettings.model_validate({"endpoint": endpoint, "timeout_seconds": 120.0})
    store = open_store(f"s3://{bucket}/dvc", settings)
    requests = Counter[str]()
    client: Any = store._bucket.client  # type: ignore[attr-defined]
    client.meta.events.register("before-send.s3", lambda event_name, **_: requests.update([event_name]))
    place, before = BucketPlace("DVC remote", store, by_name=True), resident()
    for what, run in (("inventory", take_inventory), ("removal", remove_all), ("fresh listing", take_inventory)):
        requests.clear()
        start = time.perf_counter()
        (finding,) = run([place], targets)
        seconds, asked = time.perf_counter() - start, requests.total()
        calls = ", ".join(f"{times} {event.rpartition('.')[2]}" for event, times in sorted(requests.items()))
        print(
            f"  {what:<14} {finding.found:>7} copies  {asked:>5} requests  "
            f"{asked * 1000 / count:5.2f} per 1,000 objects in the bucket  {seconds:6.1f} s  "
            f"({calls})"
        )
        assert finding.stayed == 0, finding.obstacles
    left = sum(1 for _ in store.versions())
    assert (finding.found, left) == (0, KEPT), "the wrong objects went"
    print(f"  memory grew by {(peak() - before) / 2**20:.1f} MiB; {left} objects that had to stay are there")
    print(f"grown {peak() - before}")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measured(s3: S3, bucket: str, count: int) -> int:
    """Fill a bucket, purge it in another process, and return by how much that one's memory grew."""
    start = time.perf_counter()
    fill(s3, bucket, count)
    print(f"{count:,} objects, of which {KEPT} stay (written in {time.perf_counter() - start:.0f} s)", flush=True)
    done = subprocess.run(
        [sys.executable, __file__, "--purge", s3.endpoint, bucket, str(count)],
        env=os.environ | s3.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *lines, grown = done.stdout.splitlines()
    print("\n".join(lines), flush=True)
    return int(grown.split()[1])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS
    if shutil.which("radosgw") is None:
        print("radosgw is not installed (tests/integration/install-servers): skipped")
        return
    with tempfile.TemporaryDirectory() as folder, rados_gateway(Path(folder) / "rgw") as s3:
        small = measured(s3, "small", max(count // 10, 2 * KEPT))
        large = measured(s3, "large", count)
    print(f"memory for a tenth of the objects / for all of them: {small / large:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--purge"]:
        purge(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
