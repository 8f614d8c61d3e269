"""Load on a model server: every answer is compared with what the model of its version predicts."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from mbd.model.predictor import Model
from mbd.tensors import Array
from tests.serving.inference.server import Client, rows_of

CLIENTS = 4


class Load:
    """Clients that ask again and again, each for other modalities, and check every answer.

    Args:
        port: Where the server listens.
        name: Name of the model.
        model_of: Returns the model of a version.
        version: The version that is served now.
        pause: Seconds between two requests of a client.

    """

    def __init__(
        self, port: int, name: str, model_of: Callable[[str], Model], version: str, *, pause: float = 0
    ) -> None:
        self._port, self._name, self._model_of, self._version, self._pause = port, name, model_of, version, pause
        self._end = threading.Event()
        self.answers, self.problems = Counter[str](), list[str]()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number: int) -> None:
        rows = rows_of(self._model_of(self._version), 1 + number, seed=number)
        chosen = [("text",), ("visual",), ("text", "visual")][number % 3]
        given: dict[str, Array] = {m: rows[m] for m in chosen}
        expected = cache(lambda version: self._model_of(version).predict(given))
        with Client(self._port) as client:
            while not self._end.wait(self._pause):
                try:
                    reply = client.infer(self._name, given, binary=bool(number % 2))
                    version = reply.document["model_version"]
                    np.testing.assert_allclose(reply.outputs["prediction"], expected(version), rtol=1e-5, atol=1e-6)
                    self.answers[version] += 1
                except Exception as error:
                    self.problems.append(repr(error))
                    return
