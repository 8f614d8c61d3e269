"""Under load: releases take over from each other without a failed or wrong answer, and memory stays flat."""

import gc
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from mbd.formats.statement import DeletionStatement, to_payload
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.serving.inference.routes import InferenceService
from mbd.trust.envelope import PAYLOAD_TYPE, sign
from mbd.trust.keys import load_signer
from tests.monitoring.golden_store import GOLDEN, GoldenStore, golden
from tests.serving.inference.load import Load
from tests.serving.inference.server import following, rows_of, served, service_of

NAME = golden("exact").predicate.model
SWAPS = 20
KINDS = ("exact", "surgery", "certified")


@pytest.mark.slow
def test_twenty_swaps_under_load_fail_no_request_and_give_no_wrong_answer(tmp_path: Path) -> None:
    store = GoldenStore.open(tmp_path / "golden")
    store.files(*KINDS)
    models = {kind: load(GOLDEN / kind / "model") for kind in KINDS}
    settings = [f"serving.inference.models=[{NAME}]", "serving.inference.poll_seconds=0.02"]
    service = InferenceService(load_params(None, settings), store.store, store.trust_file)
    last = store.certificate(KINDS[0], model=NAME)
    kinds = {last: KINDS[0]}
    serving = following(service, NAME)
    with serving as client, Load(client.port, NAME, lambda version: models[kinds[version]], last) as load_on_it:
        for swap in range(1, SWAPS + 1):
            kind = KINDS[swap % len(KINDS)]
            statement = store.dated(kind, model=NAME, supersedes=last)
            last = digest_of(store, statement)
            kinds[last] = kind
            assert store.publish(statement) == last
            while not load_on_it.answers[last]:
                assert not load_on_it.problems
                time.sleep(0.002)  # the server and its clients are threads of this process
    assert not load_on_it.problems
    assert len(load_on_it.answers) == SWAPS + 1
    swaps = service.samples.registry.get_sample_value("mbd_inference_swaps_total", {"model": NAME})
    assert swaps == SWAPS


def digest_of(store: GoldenStore, statement: DeletionStatement) -> str:
    """Return the digest that a statement will have when it is published: signatures are deterministic."""
    signer = load_signer(f"file:{store.folder}/keys/signer.pem")
    return sign(to_payload(statement), PAYLOAD_TYPE, [signer]).digest


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests(tmp_path: Path) -> None:
    model = load(GOLDEN / "surgery" / "model")
    given = rows_of(model, 4)
    with served(service_of({NAME: model}, tmp_path)) as client:

        def ask(count: int) -> int:
            for number in range(count):
                assert client.infer(NAME, given, binary=bool(number % 2)).status == 200
                if number % 10 == 0:
                    assert client.infer(NAME, {"text": given["text"][:, :3]}).status == 422
            gc.collect()
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        sizes = [ask(500) for _ in range(4)]
    # A leak grows all the time; what the process sets aside once, for whatever ran in it before, does not.
    grown = min(after - before for before, after in pairwise(sizes)) / 500
    assert grown < 1024, f"{grown:.0f} bytes for each request"
