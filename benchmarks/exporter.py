"""Claims about the exporter, with a store that holds certificates of the usual size (all attacks, full suite).

1. With 10,000 certificates a scrape takes less than 50 ms.
2. A start on a machine that has never seen the store is linear in the certificates: the time for each of them stays the
   same. Aim: 1 ms of CPU for each.
3. Memory is bounded: little is kept of each certificate, far less than the certificate itself.
4. A look at a store in which nothing is new reads nothing, and takes a small part of the first one.
5. A start on a machine that has seen the store before takes a small part of the first one. Aim with 10,000 of them:
   half a second beyond that with one certificate.

A start is compared with that on a store with one certificate: what is left is the work for the others.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np

from mbd.formats.layout import certificate_name, proof_name
from mbd.formats.statement import DeletionStatement, parse_payload, to_payload
from mbd.log.append import append_leaf
from mbd.log.checkpoint import Inclusion, leaf_of
from mbd.log.merkle import inclusion_proof
from mbd.log.reader import Log
from mbd.log.tiles import claim_name, node_in
from mbd.monitoring.store_scanner import StoreScanner
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, sign
from mbd.trust.keys import LOG, TRUST, load_signer, make_keys
from mbd.trust.trust_file import read_trust

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "certificates" / "v1" / "surgery" / "bundle"
SIZES = (2500, 10000)
MODELS = 10
SCRAPES = 50


@dataclass(frozen=True)
class Cost:
    """How long something took."""

    wall: float
    cpu: float
    """seconds of the process on a processor, which other load on the machine does not change"""

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of CPU)"


def payloads(count: int) -> Iterator[bytes]:
    """Yield what certificates of some models state, each a little different."""
    statement, at = parse_payload(Envelope.parse((GOLDEN / "certificate.json").read_bytes()).content), now()
    assert isinstance(statement, DeletionStatement)
    later = at + timedelta(days=90)
    changes = {"model": "MODEL", "issued": at, "reaudit_by": later, "supersedes": None}
    one = statement.model_copy(update={"predicate": statement.predicate.model_copy(update=changes)})
    text, due = to_payload(one), f"{later:%Y-%m-%dT%H:%M:%SZ}".encode()
    for number in range(count):
        moved = f"{later + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}".encode()
        yield text.replace(b'"MODEL"', b'"model-%d"' % (number % MODELS)).replace(due, moved)


def fill(store: Store, keys: Path, count: int) -> int:
    """Publish `count` certificates; return the size of one."""
    signer, log_signer = load_signer(f"file:{keys}/signer.pem"), load_signer(f"file:{keys}/{LOG}.pem")
    trust = read_trust(keys / TRUST)
    envelopes = [sign(payload, PAYLOAD_TYPE, [signer]).to_bytes() for payload in payloads(count)]
    for place, envelope in enumerate(envelopes):
        store.create(claim_name(place), leaf_of(envelope))
    append_leaf(store, leaf_of(envelopes[-1]), log_signer, trust)
    log = Log(store, trust)
    for place, envelope in enumerate(envelopes):
        digest = leaf_of(envelope).hex()
        hashes = tuple(one.hex() for one in inclusion_proof(node_in(log.hashes), place, log.size))
        proof = Inclusion(index=place, tree_size=log.size, hashes=hashes, checkpoint=log.head.text)
        store.create(certificate_name(digest), envelope)
        store.create(proof_name(digest), proof.to_bytes())
    return len(envelopes[0])


@contextmanager
def exporter(url: str, keys: Path) -> Iterator[tuple[str, int, Cost]]:
    """Run `mbd exporter`; yield its address, its process and what the start took, once it has looked at the store."""
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "exporter", "--store", url, "--port", "0"]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--trust", str(keys / TRUST)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        address = process.stdout.readline().split("/metrics")[0]
        while not is_ready(address):
            time.sleep(0.25)  # asking takes CPU, too
        yield address, process.pid, Cost(time.perf_counter() - start, cpu_seconds(process.pid))
    finally:
        process.terminate()
        assert process.wait(30) == 0


def is_ready(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/readyz", timeout=60).close()
    except urllib.error.HTTPError:
        return False
    return True


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process: others on the machine have no say in it."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the largest memory that a process has had, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


def scrape_times(address: str) -> list[float]:
    times = []
    for _ in range(SCRAPES):
        start = time.perf_counter()
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as response:
            page = response.read()
        times.append(time.perf_counter() - start)
    assert b"mbd_store_up 1.0" in page
    return times


def looks(url: str, keys: Path) -> tuple[float, float, int]:
    """Return the CPU seconds of a first and a second look, and how many objects the second one read."""
    scanner = StoreScanner(open_store(url), open_private(url, StoreSettings()), keys / TRUST)
    times = [time.process_time()]
    for _ in range(2):
        found = scanner.scan()
        times.append(time.process_time())
    return times[1] - times[0], times[2] - times[1], found.read


def main() -> None:
    memory, rows = Path("/dev/shm"), []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
        folder = Path(temporary)
        keys = folder / "keys"
        make_keys(keys, "signer")
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        one = f"file://{folder}/store-1"
        fill(open_store(one), keys, 1)
        with exporter(one, keys) as (_, _, least):
            print(f"a start with one certificate: {least}")
        print("certificates   first start   ms (CPU) for each   scrape ms   (of it, CPU)   memory MB   start again")
        for size in SIZES:
            url = f"file://{folder}/store-{size}"
            large = fill(open_store(url), keys, size)
            with exporter(url, keys) as (address, pid, first):
                before, scrape = cpu_seconds(pid), float(np.median(scrape_times(address)))
                used, peak = (cpu_seconds(pid) - before) / SCRAPES, memory_mb(pid)
            with exporter(url, keys) as (_, _, again):
                pass
            each = (first.cpu - least.cpu) / size
            rows.append((each, scrape, peak))
            shown = f"{scrape * 1e3:9.1f}   {used * 1e3:12.1f}   {peak:9.0f}"
            print(f"{size:12}   {first}   {each * 1e3:17.2f}   {shown}   {again}", flush=True)
        os.environ["XDG_CACHE_HOME"] = str(folder / "another")
        cold, second, read = looks(f"file://{folder}/store-{SIZES[0]}", keys)
    few, many = rows[0], rows[-1]
    clock = first.wall - least.wall
    print(f"time for each certificate at {SIZES[-1]} to that at {SIZES[0]}: {many[0] / few[0]:.2f} (claim: about 1)")
    print(f"a first start at {SIZES[-1]}: {clock:.1f} s on the clock more than with one")
    print(f"  and {first.cpu - least.cpu:.1f} s of CPU, {many[0] * 1e3:.2f} ms for each certificate (aim: 1)")
    print(f"a start again: {again.cpu - least.cpu:.2f} s of CPU more than with one (aim: 0.5)")
    print(f"a scrape at {SIZES[-1]}: {many[1] * 1e3:.1f} ms (claim: less than 50)")
    kept = (many[2] - few[2]) * 2**20 / (SIZES[-1] - SIZES[0])
    print(f"memory for each certificate: {kept / 1024:.1f} KiB, {kept / large:.2f} of its size (claim: less than 0.2)")
    print(f"a look at {SIZES[0]} with nothing new reads {read} objects in {second / cold:.3f} of the first one's time")


if __name__ == "__main__":
    main()
