"""Our log in the eyes of others: an independent reader of tiled logs, and a real S3 server."""

import base64
import functools
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbd.log.append import append_leaf
from mbd.log.check import check_log
from mbd.log.checkpoint import DATED, PLAIN, verifier_key
from mbd.log.reader import Log
from mbd.params.operations import StoreSettings
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.trust.keys import TRUST
from mbd.trust.public_keys import raw_ed25519
from tests.certificate.killing import killed_at, side_by_side
from tests.integration.servers.rgw import S3
from tests.log.build import LogLocation, log_of
from tests.trust.keys import Keys, keys_in, leaf

pytestmark = pytest.mark.services

SIZE = 700
READER = "tlog-scales==0.0.3"
READ = """
import json, sys
from tlog_scales import backend, signing, tiles
from tlog_scales.reader import TilesReader

location, *keys = sys.argv[1:]
reader = TilesReader(backend.make_backend(location))
head = reader.get_checkpoint()
for key in keys:
    head.verify(signing.Vkey.from_string(key))
assert reader.calculate_root_hash() == head.root_hash, "root"
entries = []
for index in range(head.size):
    entry = reader.get_entry(index)
    entries.append(entry.hex())
    if index % 37 == 0 or index == head.size - 1:
        reader.get_inclusion_proof(index, head.size).check(tiles.leaf_hash(entry), head.root_hash)
for old in (1, 2, 255, 256, 257, 511, 512, head.size - 1, head.size):
    proof = reader.get_consistency_proof(old, head.size)
    proof.check(reader.mth(0, old), head.root_hash)
stamp = [signature.payload for signature in head.signatures if len(signature.payload) == 72][0]
time = signing.Ed25519CosignatureVerifier.get_timestamp(stamp)
print(json.dumps({"size": head.size, "origin": head.origin, "entries": entries, "time": time}))
"""


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the independent reader; it cannot live beside our other packages."""
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", READER], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        pytest.skip(f"{READER} cannot be installed: {done.stderr[-300:]}")
    return python


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> LogLocation:
    return log_of(tmp_path_factory.mktemp("log"), SIZE)


@pytest.fixture
def served(place: LogLocation) -> Iterator[str]:
    """The store's folder over HTTP."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    handler = functools.partial(Quiet, directory=str(place.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/log"
        server.shutdown()
        thread.join()


def read(reader: Path, location: str, keys: Keys) -> subprocess.CompletedProcess[str]:
    public = raw_ed25519(keys.trust.keys_for("log")[0].public)
    verifiers = [verifier_key(keys.trust.log_origin, public, kind) for kind in (PLAIN, DATED)]
    return subprocess.run(
        [reader, "-c", READ, location, *verifiers], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("over", ["files", "http"])
def test_an_independent_reader_accepts_our_log(reader: Path, place: LogLocation, served: str, over: str) -> None:
    location = served if over == "http" else f"file://{place.folder / 'log'}"
    done = read(reader, location, place.keys)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["size"], seen["origin"]) == (SIZE, place.keys.trust.log_origin)
    assert seen["entries"] == [leaf(number).hex() for number in range(SIZE)]
    assert seen["time"] == int(place.log.head.time.timestamp())


def test_it_makes_the_same_proof_as_we_do(reader: Path, place: LogLocation) -> None:
    command = reader.with_name("tlog-tiles")
    done = subprocess.run(
        [command, "gen-proof", str(place.folder / "log"), str(SIZE - 1)], capture_output=True, text=True, check=True
    )
    ours = place.log.inclusion(SIZE - 1)
    hashes = [base64.b64encode(bytes.fromhex(one)).decode() for one in ours.hashes]
    expected = ["c2sp.org/tlog-proof@v1", f"index {SIZE - 1}", *hashes, "", *ours.checkpoint.splitlines()]
    assert done.stdout.splitlines() == expected


def test_it_refuses_what_is_not_ours(reader: Path, place: LogLocation, tmp_path: Path) -> None:
    stranger = Keys(tmp_path / "keys")
    keys_in(stranger.folder)
    assert read(reader, f"file://{place.folder / 'log'}", stranger).returncode != 0
    damaged = place.copy(tmp_path / "store")
    tile = damaged.file("log/tile/0/001")
    tile.write_bytes(bytes(32) + tile.read_bytes()[32:])
    assert read(reader, f"file://{damaged.folder / 'log'}", place.keys).returncode != 0


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    name = f"log-{abs(hash(request.node.name)) % 10**8}"
    s3.client().create_bucket(Bucket=name)
    return name


def on_s3(s3: S3, bucket: str) -> Store:
    return open_store(f"s3://{bucket}/mbd", StoreSettings(endpoint=s3.endpoint))


def test_sixteen_writers_on_s3_give_one_order(s3: S3, bucket: str, tmp_path: Path) -> None:
    keys = keys_in(tmp_path)

    def write(number: int) -> None:
        for one in (100, number):
            append_leaf(on_s3(s3, bucket), leaf(one), keys.log, keys.trust).verify(leaf(one), keys.trust)

    side_by_side([lambda number=number: write(number) for number in range(16)])  # type: ignore[misc]
    assert sorted(entry for _, entry in Log(on_s3(s3, bucket), keys.trust).entries()) == sorted(
        leaf(number) for number in (100, *range(16))
    )
    report = check_log(on_s3(s3, bucket), keys.trust)
    assert (report.problems, report.pending) == ([], 0)


def test_killed_on_s3_and_run_again(s3: S3, bucket: str, tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    assert (tmp_path / TRUST).exists()

    def run(store: Store, number: int) -> None:
        append_leaf(store, leaf(number), keys.log, keys.trust)

    deaths = 0
    for operation in range(1, 13):
        deaths += killed_at(
            operation,
            "after",
            functools.partial(on_s3, s3, bucket),
            functools.partial(run, number=operation),
        )
        run(on_s3(s3, bucket), operation)
    assert deaths >= 10
    report = check_log(on_s3(s3, bucket), keys.trust)
    assert (report.size, report.problems, report.pending) == (12, [], 0)
