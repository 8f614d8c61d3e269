"""Publishing into any store, and what has to be there afterwards."""

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mbd.certificate.publish import publish_certificate
from mbd.certificate.verification import from_folder, from_store, verify_bundle
from mbd.files import sha256_file
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import Receipt, certificate_name, latest_name, read_pointer
from mbd.log.check import check_log
from mbd.randomness import stream
from mbd.storage.store import Store
from mbd.trust.commitments import read_private
from tests.certificate.authority import CertificateAuthority


def publish_into(store: Store, authority: CertificateAuthority, kind: str) -> Receipt:
    """Publish a bundle of an authority, made before, into a store."""
    given = from_folder(authority.bundle(kind), authority.model_workspace.deletion(kind))
    files = {name: places[0] for name, places in given.files.items()}
    return publish_certificate(authority.publisher(store), given.envelope, files)[0]


def one_certificate(store: Store, authority: CertificateAuthority, kind: str, folder: Path) -> None:
    """Check that a store holds this one certificate, whole, with one log entry, and nothing else."""
    digest = sha256_file(authority.bundle(kind) / CERTIFICATE)
    verdict = verify_bundle(from_store(store, digest, folder), authority.trust)
    assert verdict.verified, verdict.problems
    log = check_log(store, authority.trust, certificate_name=certificate_name)
    assert (log.size, log.pending, log.certificates, log.problems) == (1, 0, 1, [])
    pointer = latest_name("sentiment", "audio")
    assert read_pointer(store.read(pointer), pointer).certificate == digest
    receipt = publish_into(store, authority, kind)
    known = {entry.name for entry in receipt.objects} | set(receipt.pointers)
    dangling = {stored.name for stored in store.list() if not stored.name.startswith("log/")} - known
    assert not dangling, dangling
    assert not list(store.unfinished())


def killed_at_random(
    count: int, open_store: Callable[[int], Store], run: Callable[[Store], object], seed: int = 0
) -> Iterator[int]:
    """Run `run` again and again, each time killed with SIGKILL at a random moment; yield the number of each run.

    Moments are spread over the time that a whole run takes, so that they fall into operations, too. A run that was
    faster than its moment does not count.
    """
    context, draw = multiprocessing.get_context("fork"), stream(seed, "killed at random")
    start = time.perf_counter()
    run(open_store(-1))
    whole, done = time.perf_counter() - start, 0
    for number in range(20 * count):
        process = context.Process(target=lambda: run(open_store(number)))  # noqa: B023 -- forked within this turn
        process.start()
        process.join(draw.uniform(0, whole))
        process.kill()
        process.join(60)
        if process.exitcode == -signal.SIGKILL:
            yield number
            done += 1
        if done == count:
            return
    raise AssertionError(f"only {done} of {count} runs could be killed")


def secrets_of(authority: CertificateAuthority, escrow: Path | None = None) -> dict[str, bytes]:
    """Return every secret of an authority, in each form in which it could leak."""
    secrets: dict[str, bytes] = {}
    for file in (authority.folder / "keys").glob("*.pem"):
        lines = file.read_text().splitlines()
        secrets[f"key {file.stem}"] = "".join(line for line in lines if not line.startswith("-----")).encode()
    for file in (authority.folder / "private").glob("*.json"):
        for number, opening in enumerate(read_private(file).openings):
            secrets[f"salt {file.stem[:8]}/{number}"] = opening.salt.encode()
            secrets[f"salt {file.stem[:8]}/{number} in bytes"] = bytes.fromhex(opening.salt)
            if opening.kind == "subject":
                secrets[f"subject {opening.value}"] = opening.value.encode()
    for line in escrow.read_text().splitlines() if escrow else []:
        entry = json.loads(line)
        for what in ("key", "salt"):
            secrets[f"{what} of the noise"] = entry[what].encode()
            secrets[f"{what} of the noise in bytes"] = bytes.fromhex(entry[what])
    return secrets


def assert_free_of(secrets: dict[str, bytes], contents: dict[str, bytes]) -> None:
    """Check that no secret is in any content."""
    found = [
        (what, name) for name, content in contents.items() for what, secret in secrets.items() if secret in content
    ]
    assert not found, found
