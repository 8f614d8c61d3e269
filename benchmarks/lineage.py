"""Claims about one lineage over a simulated year: many requests, modalities and persons mixed, retrained every month.

1. After every request its certificate verifies, and log, current release, what is revoked, budget and the exporter's
   metrics are right; its purge leaves no copy of older weights, neither in the store nor in the folder of the models.
2. Each month ends with weights that are, bit for bit, those of training on what is left: exact all the way.
3. A request late in the year costs less than three times what one in the first month did.

`python benchmarks/lineage.py [REQUESTS [MONTHS]]` prints the figures of each month: CPU seconds of carrying out a
person's request, of a modality's, of a purge, and the numbers of releases and log entries.
"""

import logging
import os
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from statistics import median

from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.files import sha256_file
from mbd.formats.request import DeletionRequest
from mbd.history.history import ModelHistory
from mbd.history.replay import read_history
from mbd.monitoring import metrics
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.monitoring.store_scanner import StoreScanner
from mbd.params import Params, load_params
from mbd.production import models, register
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.randomness import stream
from mbd.steps import features, purge, train, verify
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from mbd.tensors import open_tensors
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import read_trust

REQUESTS, MONTHS, NAME = 500, 12, "year"
MODALITIES = ("text", "audio", "visual")


class Year:
    """A lineage in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"file://{folder}/store"
        make_keys(folder / "keys", "signer")
        self.params = self._params(self.url)
        features.run(self.params, folder / "features")
        data = FeatureSet.open(folder / "features")
        persons = sorted({str(g) for split in data.manifest.splits for g in data.split(split).groups})
        stream(0, "persons").shuffle(persons)
        # each person asks for one modality, and later in the year for another
        self.asked = ((MODALITIES[(n + turn) % 3], one) for turn in range(3) for n, one in enumerate(persons))
        self.forgotten: dict[str, list[str]] = {modality: [] for modality in MODALITIES}
        self.monitor = StoreMonitor(
            StoreScanner(open_store(self.url), self.private, self.folder / "keys" / "trust.json"), 60
        )
        self.purging: list[float] = []

    def _params(self, url: str) -> Params:
        keys = self.folder / "keys"
        rows = "{train: 3000, valid: 600, test: 600, calibration: 64}"
        return load_params(
            None,
            [
                f"certificate.signers=['file:{keys}/signer.pem']",
                f"certificate.log_signer=file:{keys}/log.pem",
                f"certificate.trust={keys}/trust.json",
                f"certificate.private={self.folder}/private",
                f"deletion.ledgers={self.folder}/ledgers",
                *(f"purge.tombstones={self.folder}/tombstones", f"purge.kfp_root={self.folder}/kfp"),
                f"certificate.model={NAME}",
                f"store.url={url}",
                "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
                f"features.source.synthetic.rows={rows}",
                *("model.backbone=lattice", "model.lattice.components=4", "model.lattice.landmarks=8"),
                *("deletion.method=exact", "evaluation.figures=false", "evaluation.missing_rates=[0.3]"),
                *("attacks.figures=false", "attacks.resamples=200"),
            ],
        )

    def known(self) -> ModelHistory:
        """Return what the log says of the model."""
        trust = read_trust(self.folder / "keys" / "trust.json")
        return read_history(open_store(self.url), trust).require().model(NAME)

    def size(self) -> int:
        """Return the number of entries of the log."""
        return read_history(open_store(self.url), read_trust(self.folder / "keys" / "trust.json")).size

    def retrain(self, month: int) -> None:
        """Train on what is left, with references, and register."""
        model, without = self.models / f"model-{month}", [self.models / f"{month}-without-{m}" for m in MODALITIES]
        train.run(self.params, self.folder / "features", model)
        for modality, folder in zip(MODALITIES, without, strict=True):
            train.run(self.params, self.folder / "features", folder, (modality,))
        assert register.run(self.params, model, without, NAME, self.url).promoted

    def request(self, modality: str, person: str | None) -> float:
        """Submit and carry out a request; check what it has led to; return the seconds of carrying it out."""
        submit(self.params, self.url, NAME, [modality], [person] if person else [], features_folder=self.data)
        worker = Worker(self.params, RequestStore.open(self.params, self.url), self.url, self.data, None, "benchmark")
        start = time.process_time()
        ((done, outcome),) = worker.run()
        seconds = time.process_time() - start
        assert done.state == "certified", outcome
        if person:
            self.forgotten[modality].append(person)
        self._check(done, None if person else modality)
        self._purge(done)
        return seconds

    def _check(self, done: DeletionRequest, modality: str | None) -> None:
        """Check what a request has led to; `modality`: the one that was deleted as a whole."""
        known, entries = self.known(), sum(map(len, self.forgotten.values()))
        assert known.current is not None
        assert (known.current.digest, known.problem(known.current)) == (done.certificate, None)
        assert known.revoked == ({modality} if modality else frozenset())
        assert len(known.persons) == entries
        assert known.certificates[-1].kind == "exact"
        assert known.certificates[-1].spent is None  # an exact deletion costs nothing,
        assert not (self.folder / "ledgers").exists()  # and is in no ledger
        place = f"{self.url}/certificates/{done.certificate}"
        assert verify.run(self.params, place, trust=self.folder / "keys" / "trust.json").verified
        self.monitor.scan()
        text = self.monitor.text()
        assert f'{metrics.MODEL_USABLE.name}{{model="{NAME}"}} 1.0' in text
        requests = len(list(RequestStore.open(self.params, self.url).all()))
        assert f'{metrics.REQUESTS.name}{{model="{NAME}",state="certified"}} {requests}.0' in text

    def _purge(self, done: DeletionRequest) -> None:
        """Remove every copy of what was before; afterwards the store has the current weights and ready references."""
        start = time.process_time()
        plan = purge.plan(self.params, None, self.url, certificate=done.certificate, root=self.models)
        record = purge.run(self.params, plan, self.url).record
        self.purging.append(time.process_time() - start)
        assert record.erasure.claim == "complete", record.erasure.note
        known = self.known()
        assert known.current is not None
        allowed = {known.current.weights, *(one.weights for one in known.ready)}
        assert self._weights() <= allowed

    def _weights(self) -> set[str]:
        """Return the weights that are in the store and in the folder of the models."""
        stored = self.folder / "store" / "objects" / "sha256"
        files = [one for one in stored.iterdir() if one.read_bytes()[8:9] == b"{"]  # safetensors: size, then JSON
        return {sha256_file(one) for one in (*files, *self.models.rglob("*.safetensors")) if _is_model(one)}

    def exact(self, month: int) -> bool:
        """Return whether the current release is what training on the rest of the data gives."""
        current, known = self.known().current, self.known()
        folder = self.folder / "rest" / str(month)
        folder.mkdir(parents=True)
        leave_out(self.data, folder, self.forgotten)
        elsewhere = self._params(f"file://{self.folder}/elsewhere")
        result = train.run(elsewhere, folder, folder / "model", tuple(sorted(known.revoked)))
        return current is not None and result is not None and result.sha256 == current.weights

    @property
    def data(self) -> Path:
        """The FeatureSet."""
        return self.folder / "features"

    @property
    def models(self) -> Path:
        """The folder in which models are trained."""
        return self.folder / "models"

    @property
    def private(self) -> Store:
        """The private part of the store."""
        return open_private(self.url, self.params.store)


def _is_model(file: Path) -> bool:
    """Return whether safetensors are weights of a lattice, and no positions of an edit."""
    return any(name.startswith("module.") for name in open_tensors(file))


def main(requests: int = REQUESTS, months: int = MONTHS) -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        os.environ["XDG_CACHE_HOME"] = f"{temporary}/cache"
        tempfile.tempdir = f"{temporary}/tmp"  # a purge searches what killed steps have left there
        Path(tempfile.tempdir).mkdir()
        year, costs, start = Year(Path(temporary)), list[float](), time.perf_counter()
        for month in range(months):
            if month:
                models.reinstate(year.params, NAME, ["audio"], f"consent of month {month}", year.url)
            year.retrain(month)
            count = requests * (month + 1) // months - requests * month // months
            people = [year.request(*next(year.asked)) for _ in range(count - 1)]
            modality = year.request("audio", None)
            assert year.exact(month)
            costs.append(median(people))
            entries, releases = year.size(), len(year.known().releases)
            print(
                f"month {month + 1}: {count} requests, exact; a person {median(people):.2f} s, a modality "
                f"{modality:.2f} s, a purge {median(year.purging[-count:]):.2f} s; {releases} releases, "
                f"{entries} entries in the log",
                flush=True,
            )
        print(f"a person's request, last month to first: {costs[-1] / costs[0]:.2f} (claim: < 3)")
        print(f"all {requests} requests with training, checks and purges: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
