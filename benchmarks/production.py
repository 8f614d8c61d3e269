"""Claims about a deletion from the model in production, at the size of MOSEI (16,326 train rows; 300, 74, 35 numbers).

1. With a registered reference a request trains nothing. The deletion itself takes seconds, and its weights are, bit for
   bit, those of a model that never saw the modality.
2. A modality of three persons is deleted faster than everything is trained again, bit for bit as training without these
   recordings. It is not 20 times faster: that would need sums over rows to subtract from, and they are not sufficient
   (mbd/deletion/exact.py says why). What solving for weights takes, which sums would not spare, is printed as a bound.

Durations are CPU seconds of one thread, except for the request as a whole.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.formats.deletion import read_deletion
from mbd.history.replay import read_history
from mbd.params import Params, load_params
from mbd.production import register
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.production.worker import Worker
from mbd.steps import delete, features, train
from mbd.storage import open_store
from mbd.training.lattice.ridge import FoldedRidge
from mbd.trust.keys import make_keys
from mbd.trust.trust_file import read_trust

DIMS = "{text: 300, audio: 74, visual: 35}"
NAME, GONE, PERSONS, REPEATS = "production", "audio", 3, 3


def seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def settings(folder: Path, preset: str) -> Params:
    keys = folder / "keys"
    return load_params(
        None,
        [
            f"certificate.signers=['file:{keys}/signer.pem']",
            f"certificate.log_signer=file:{keys}/log.pem",
            f"certificate.trust={keys}/trust.json",
            f"certificate.private={folder}/private",
            f"certificate.model={NAME}",
            f"store.url=file://{folder}/store",
            f"features.source.preset={preset}",
            f"features.source.synthetic.dims={DIMS}",
            *("model.backbone=lattice", "deletion.method=exact", "evaluation.figures=false", "attacks.figures=false"),
        ],
    )


@contextmanager
def no_training() -> Iterator[None]:
    """Within: a training ends the benchmark."""
    run = train.run

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a request has trained a model")

    train.run = refuse
    try:
        yield
    finally:
        train.run = run


def of_a_modality(params: Params, folder: Path) -> None:
    data, url = folder / "features", params.store.url
    reference = train.run(params, data, folder / "reference", (GONE,))
    assert reference is not None
    register.run(params, folder / "model", [folder / "reference"], NAME, url)
    itself = [
        seconds(delete.run, params, data, folder / "model", [GONE], (), folder / f"deleted-{n}") for n in range(REPEATS)
    ]
    submit(params, url, NAME, [GONE])
    worker = Worker(params, RequestStore.open(params, url), url, data, None, "benchmark")
    start = time.perf_counter()
    with no_training():
        ((done, outcome),) = worker.run()
    whole = time.perf_counter() - start
    assert done.state == "certified", outcome
    current = read_history(open_store(url), read_trust(folder / "keys" / "trust.json")).model(NAME).current
    assert current is not None
    print(f"the deletion of {GONE} itself, with reading and writing: {np.median(itself):.2f} s, no training in it")
    print(f"the request with evaluation, attacks, certificate and publication: {whole:.0f} s of wall time")
    print(f"weights equal those of a model that never saw {GONE}: {current.weights == reference.sha256}")


class Solving:
    """How long ridges are solved for."""

    def __init__(self) -> None:
        self.seconds, self._solve = 0.0, FoldedRidge._solve

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Within: they are counted."""

        def solve(ridge: FoldedRidge, *arguments: Any) -> Any:  # noqa: ANN401 -- as the method
            start = time.thread_time()
            try:
                return self._solve(ridge, *arguments)
            finally:
                self.seconds += time.thread_time() - start

        FoldedRidge._solve = solve  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            FoldedRidge._solve = self._solve  # type: ignore[method-assign]


def of_persons(params: Params, folder: Path, again: float) -> None:
    data = FeatureSet.open(folder / "features")
    persons = np.unique(data.split("train").groups)[:PERSONS].tolist()
    for modality in data.modalities:
        outs, solving = [folder / f"{modality}-{n}" for n in range(REPEATS)], Solving()
        with solving.counted():
            taken = [
                seconds(delete.run, params, data.folder, folder / "model", [modality], persons, out) for out in outs
            ]
        rest = folder / f"rest-{modality}"
        rest.mkdir()
        leave_out(data.folder, rest, {modality: persons})
        never, found = train.run(params, rest, folder / f"never-{modality}"), read_deletion(outs[0])
        assert never is not None
        assert found is not None
        share = solving.seconds / sum(taken)
        print(
            f"{modality} of {PERSONS} persons: {min(taken):.2f} s; ratio {again / min(taken):.1f} (claim: above 1); "
            f"{100 * share:.0f} % of it is solving, which bounds any ratio by {again / (min(taken) * share):.0f}; "
            f"equal to training without them: {never.sha256 == found.after}",
            flush=True,
        )


def main(preset: str = "mosei") -> None:
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        folder = Path(temporary)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        make_keys(folder / "keys", "signer")
        params = settings(folder, preset)
        features.run(params, folder / "features")
        data = FeatureSet.open(folder / "features")
        print(f"size of {preset}: {data.manifest.splits['train'].rows} train rows, {data.modalities}")
        again = min(seconds(train.run, params, data.folder, folder / f"again-{n}") for n in range(REPEATS))
        print(f"training everything: {again:.2f} s", flush=True)
        train.run(params, data.folder, folder / "model")
        of_persons(params, folder, again)
        of_a_modality(params, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
