"""Claims about one lineage over a simulated year: many requests, modalities and persons mixed, retrained every month.

1. After every request the log, the current release and what is revoked are right, and the state of the requests, too.
2. Each month ends with weights that are, bit for bit, those of training on what is left: exact all the way.
3. A request late in the year costs less than three times what one in the first month did.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from mbd.certificate.history import ModelHistory
from mbd.certificate.keys import make_keys
from mbd.certificate.replay import read_history
from mbd.certificate.trust import read_trust
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.formats.request import DeletionRequest
from mbd.monitoring import metrics
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.monitoring.store_scanner import StoreScanner
from mbd.params import Params, load_params
from mbd.randomness import stream
from mbd.requests.request_store import RequestStore
from mbd.steps import features, models, register, train
from mbd.steps.request import Worker
from mbd.steps.submit import submit
from mbd.storage import open_private, open_store
from mbd.storage.store import Store

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
        self.persons: Iterator[str] = iter(persons)
        self.forgotten: dict[str, list[str]] = {modality: [] for modality in MODALITIES}

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

    def retrain(self, month: int) -> None:
        """Train on what is left, with references, and register."""
        model, without = self.folder / f"model-{month}", [self.folder / f"{month}-without-{m}" for m in MODALITIES]
        train.run(self.params, self.folder / "features", model)
        for modality, folder in zip(MODALITIES, without, strict=True):
            train.run(self.params, self.folder / "features", folder, (modality,))
        assert register.run(self.params, model, without, NAME, self.url).promoted

    def request(self, modality: str, person: str | None) -> float:
        """Submit and carry out a request; check what it has led to; return the seconds of carrying it out."""
        submit(self.params, self.url, NAME, [modality], [person] if person else [], features_folder=self.data)
        worker = Worker(self.params, RequestStore(self.private), self.url, self.data, None, "benchmark")
        start = time.perf_counter()
        ((done, outcome),) = worker.run()
        seconds = time.perf_counter() - start
        self._check(done, outcome, modality, person)
        return seconds

    def _check(self, done: DeletionRequest, outcome: str, modality: str, person: str | None) -> None:
        assert done.state == "certified", outcome
        if person:
            self.forgotten[modality].append(person)
        known = self.known()
        assert known.current is not None
        assert (known.current.digest, known.problem(known.current)) == (done.certificate, None)
        assert known.revoked == (frozenset() if person else {modality})
        assert len(known.persons) == sum(map(len, self.forgotten.values()))

    def exact(self, month: int) -> bool:
        """Return whether the current release is what training on the rest of the data gives."""
        current, known = self.known().current, self.known()
        folder = self.folder / f"rest-{month}"
        folder.mkdir()
        leave_out(self.data, folder, self.forgotten)
        elsewhere = self._params(f"file://{self.folder}/elsewhere")
        result = train.run(elsewhere, folder, self.folder / f"check-{month}", tuple(sorted(known.revoked)))
        return current is not None and result is not None and result.sha256 == current.weights

    def usable(self) -> bool:
        """Return whether the exporter says that the current release may be used."""
        monitor = StoreMonitor(
            StoreScanner(open_store(self.url), self.private, self.folder / "keys" / "trust.json"), 60
        )
        monitor.scan()
        return f'{metrics.MODEL_USABLE.name}{{model="{NAME}"}} 1.0' in monitor.text()

    @property
    def data(self) -> Path:
        """The FeatureSet."""
        return self.folder / "features"

    @property
    def private(self) -> Store:
        """The private part of the store."""
        return open_private(self.url, self.params.store)


def main(requests: int = REQUESTS, months: int = MONTHS) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = f"{temporary}/cache"
        year, costs = Year(Path(temporary)), list[float]()
        for month in range(months):
            if month:
                models.reinstate(year.params, NAME, ["audio"], f"consent of month {month}", year.url)
            year.retrain(month)
            count = requests * (month + 1) // months - requests * month // months
            people = [year.request(MODALITIES[n % 3], next(year.persons)) for n in range(count - 1)]
            modality = year.request("audio", None)
            assert year.exact(month)
            assert year.usable()
            costs.append(mean(people))
            size = len(year.known().releases)
            print(
                f"month {month + 1}: {count} requests, exact; a person {mean(people):.2f} s, "
                f"a modality {modality:.2f} s; {size} releases in the log",
                flush=True,
            )
        print(f"a person's request, last month to first: {costs[-1] / costs[0]:.2f} (claim: < 3)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
