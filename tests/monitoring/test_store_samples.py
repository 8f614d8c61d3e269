"""How many series a store makes is bounded, whatever lies in it."""

import time

from mbd.monitoring.store_samples import MOST_NAMES, _bounded
from mbd.monitoring.store_scanner import RequestFacts


def test_requests_cannot_make_up_any_number_of_names() -> None:
    at = time.time()
    requests = [
        RequestFacts(f"{n:016x}", f"model-{n}", ("audio",), "received", at + n, at + n, None, (("received", at),))
        for n in range(MOST_NAMES + 50)
    ]
    bounded = _bounded(reversed(requests))
    assert len(bounded) == len(requests)
    assert {request.model for request in bounded} == {f"model-{n}" for n in range(MOST_NAMES)} | {""}
    assert sum(request.model == "" for request in bounded) == 50
