"""Claims about verification, with a joint model from which audio was cut.

1. Digests are made at 0.9 of the speed of `sha256sum` or more.
2. `mbd verify`, a process of its own, takes at most 0.7 s of CPU for a model of 10 MB. As the model grows,
   what is added is the digest of its bytes.
3. As the log grows, the proof grows by a hash for each doubling, and verification from the store takes at most as many
   times as long (of 4,096 entries 12; 2.4 was printed, and 2.2 with AVX2).
"""

import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from mbd.certificate.compose import IssueContext, compose_predicate, compose_revocation
from mbd.certificate.inputs import CertificateInput
from mbd.certificate.publish import Publisher, publish_certificate
from mbd.certificate.verification import from_folder, from_store, verify_bundle
from mbd.files import file_digests, sha256_file, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, DeletionTarget, IndexRecord
from mbd.formats.files import CERTIFICATE, INDICES, MODEL, REPORT, WEIGHTS
from mbd.formats.guarantee import Guarantee
from mbd.formats.layout import certificate_name
from mbd.formats.leakage import LEAKAGE
from mbd.formats.model import DataRecord, ModelRecord
from mbd.formats.predicate import EvaluationEvidence, Issuer, RequestReference, Rounding
from mbd.formats.statement import DeletionStatement, subjects_of, to_payload
from mbd.log.append import append_leaf
from mbd.log.checkpoint import Inclusion
from mbd.log.tiles import claim_name
from mbd.model.checkpoint import describe, save_model
from mbd.params import load_params
from mbd.records import now
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.tensors import round_mantissa, save_tensors
from mbd.trust.commitments import Commitments, LineageKey
from mbd.trust.envelope import PAYLOAD_TYPE, sign
from mbd.trust.keys import LOG, TRUST, load_signer, make_keys
from mbd.trust.trust_file import read_trust
from mbd.verifier.structure import blueprint
from tests.formats.audits import strong_audit

REPEATS = 7
DIGESTED = 256 << 20
WIDTHS = (64, 353, 1412, 5650)
LOG_SIZES = (1, 16, 256, 4096)
ZEROS = "0" * 64


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the median time; by default CPU time, in which other processes on the machine have no say."""
    times = []
    for _ in range(REPEATS):
        start = clock()
        work()
        times.append(clock() - start)
    return float(np.median(times))


def children_time() -> float:
    """Return the CPU time of processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_deleted_model(folder: Path, width: int) -> ModelRecord:
    """Write a joint model of text and visual that had audio once."""
    folder.mkdir(parents=True)
    spec = load_params(None, [f"model.joint.hidden={width}"]).model.joint.model_dump(mode="json")
    record = ModelRecord(
        backbone="joint",
        spec=spec,
        task="regression",
        classes=(),
        label_range=(-3, 3),
        modalities={"text": 768, "visual": 512},
        revoked=("audio",),
        seed="0",
        data=DataRecord(name="random", files={}),
        guarantee=Guarantee(kind="empirical"),
        tensors={},
        sha256="",
    )
    draw = np.random.default_rng(0)
    tensors = {
        n: round_mantissa(draw.standard_normal(s, dtype=np.float32), 8) for n, s in blueprint(record, {}).items()
    }
    entries = {name: describe(tensor, ("text", "audio", "visual")) for name, tensor in tensors.items()}
    return save_model(folder, record.model_copy(update={"tensors": entries}), tensors)


def certify(folder: Path, keys: Path, width: int) -> None:
    """Write `folder`/model and its certificate in `folder`/bundle."""
    model, bundle = folder / "model", folder / "bundle"
    record = write_deleted_model(model, width)
    leakage = strong_audit(record.sha256, before=ZEROS, data={"name": "random"})
    indices = save_tensors(model / INDICES, {})
    deletion = DeletionRecord(
        method="surgery",
        request=DeletionTarget(modalities=("audio",)),
        parameters=load_params(None, []).deletion.model_dump(mode="json"),
        guarantee=Guarantee(kind="empirical", epsilon=None, delta=None, assumptions=()),
        lineage=(ZEROS,),
        before=ZEROS,
        after=record.sha256,
        revoked=("audio",),
        data={"name": "random", "digest": ZEROS},
        indices=IndexRecord(sha256=indices, count=0, by_tensor={}),
        budget=None,
        rounding=Rounding(mantissa_bits=8, chosen_by="nothing", rows=0, loss=1.0, loss_rounded=1.0),
        reference=None,
        facts={},
    )
    evaluation = EvaluationEvidence(metrics_sha256=ZEROS, modalities=("text", "visual"), rows=0, metrics={})
    material = CertificateInput(
        model, deletion, record, {DELETION: ZEROS, **file_digests(model)}, leakage, evaluation, {}
    )
    nowhere = dict.fromkeys(("dvc_revision", "git_commit", "image_digest", "run_id"))
    circumstances = IssueContext(
        "random", Issuer(name=None, contact=None), now(), 90, nowhere, {}, RequestReference(), LineageKey(bytes(32))
    )
    predicate, _ = compose_predicate(material, circumstances, Commitments())
    bundle.mkdir()
    for name in (MODEL, INDICES):
        write_file(bundle / name, (model / name).read_bytes())
    write_file(bundle / LEAKAGE, leakage.to_json())
    write_file(bundle / REPORT, "random numbers\n")
    digests = {**file_digests(bundle), WEIGHTS: record.sha256}
    statement = DeletionStatement(subject=subjects_of(digests), predicate=predicate)
    envelope = sign(to_payload(statement), PAYLOAD_TYPE, [load_signer(f"file:{keys}/signer.pem")])
    write_file(bundle / CERTIFICATE, envelope.to_bytes())


def publish(store: Store, folder: Path, keys: Path) -> Inclusion:
    given = from_folder(folder / "bundle", folder / "model")
    publisher = Publisher(
        store, load_params(None, []).store, load_signer(f"file:{keys}/{LOG}.pem"), read_trust(keys / TRUST)
    )
    files = {name: places[0] for name, places in given.files.items()}
    _, inclusion = publish_certificate(publisher, given.envelope, files)
    write_file(folder / "bundle" / "proof.json", inclusion.to_bytes())
    return inclusion


def fill_log(store: Store, size: int, keys: Path) -> None:
    """Let other statements have the first places of the log."""
    signer, leaf = load_signer(f"file:{keys}/signer.pem"), b""
    for place in range(size):
        envelope = sign(to_payload(compose_revocation(ZEROS, f"entry {place}", now())), PAYLOAD_TYPE, [signer])
        leaf = bytes.fromhex(envelope.digest)
        store.create(certificate_name(envelope.digest), envelope.to_bytes())
        store.create(claim_name(place), leaf)
    if leaf:
        append_leaf(store, leaf, load_signer(f"file:{keys}/{LOG}.pem"), read_trust(keys / TRUST))


def digest_speed(folder: Path) -> None:
    file = folder / "large"
    file.write_bytes(np.random.default_rng(0).bytes(DIGESTED))
    ours = seconds(lambda: sha256_file(file))
    theirs = seconds(lambda: subprocess.run(["sha256sum", file], check=True, capture_output=True), children_time)
    print(f"digests: {DIGESTED / ours / 1e6:.0f} MB/s; sha256sum {DIGESTED / theirs / 1e6:.0f} MB/s")
    print(f"ratio ours / sha256sum: {theirs / ours:.2f} (claim: at least 0.9)")


def as_the_model_grows(folder: Path, keys: Path) -> None:
    print("\nmodel MB   verify ms (CPU)   of which digest of the weights")
    for width in WIDTHS:
        place = folder / f"width-{width}"
        certify(place, keys, width)
        publish(open_store(f"file://{folder}/store"), place, keys)
        weights = place / "model" / WEIGHTS
        whole, digest = seconds(partial(verify_folder, place, keys)), seconds(partial(sha256_file, weights))
        print(f"{weights.stat().st_size / 1e6:8.1f}   {whole * 1e3:15.1f}   {digest * 1e3:30.1f}")
    place = folder / f"width-{WIDTHS[1]}"
    options = ["verify", place / "bundle", "--offline", "--model", place / "model", "--trust", keys / TRUST]
    run = partial(
        subprocess.run,
        [sys.executable, "-c", "from mbd.cli import main; main()", *options],
        check=False,  # without a store it ends as not verified
        capture_output=True,
    )
    size = (place / "model" / WEIGHTS).stat().st_size / 1e6
    cpu, clock = seconds(run, children_time), seconds(run, time.perf_counter)
    print(
        f"mbd verify, a process of its own, {size:.0f} MB: {cpu:.2f} s CPU (claim: at most 0.7), {clock:.2f} s in all"
    )


def verify_folder(place: Path, keys: Path) -> None:
    verdict = verify_bundle(from_folder(place / "bundle", place / "model"), read_trust(keys / TRUST))
    assert verdict.genuine, verdict.problems


def as_the_log_grows(folder: Path) -> None:
    print("\nlog entries   hashes in the proof   verify ms   from the store ms   (CPU)")
    first = 0.0
    for size in LOG_SIZES:
        place, keys = folder / f"log-{size}", folder / f"keys-{size}"
        store = open_store(f"file://{folder}/store-{size}")
        make_keys(keys, "signer")  # a log is known by its keys, and is in one store
        certify(place, keys, WIDTHS[0])
        fill_log(store, size - 1, keys)
        inclusion = publish(store, place, keys)
        offline = seconds(partial(verify_folder, place, keys))
        digest = sha256_file(place / "bundle" / CERTIFICATE)
        fetched = from_store(store, digest, place / "fetched", place / "model")
        assert verify_bundle(fetched, read_trust(keys / TRUST)).verified
        online = seconds(partial(verify_bundle, fetched, read_trust(keys / TRUST)))
        first = first or online
        print(f"{size:11}   {len(inclusion.hashes):19}   {offline * 1e3:9.1f}   {online * 1e3:17.1f}")
    limit = math.log2(LOG_SIZES[-1])
    print(f"ratio of {LOG_SIZES[-1]} entries to one, from the store: {online / first:.2f} (claim: at most {limit:g})")


def main() -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
        folder = Path(temporary)
        os.environ["XDG_CACHE_HOME"] = temporary
        make_keys(folder / "keys", "signer")
        digest_speed(folder)
        as_the_model_grows(folder, folder / "keys")
        as_the_log_grows(folder)


if __name__ == "__main__":
    main()
