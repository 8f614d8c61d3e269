"""The model server: the models, the poller that keeps them current, and the thread that computes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params import Params
from mbd.serving.inference.batching import Batcher
from mbd.serving.inference.poller import Poller
from mbd.serving.inference.releases import ReleaseLog
from mbd.serving.inference.served import ServedModels
from mbd.shredding.private_folder import private_folder
from mbd.storage.store import Store

_SHOWN_FROM_THE_START = (
    metrics.INFERENCE_READY,
    metrics.INFERENCE_SWAPS,
    metrics.INFERENCE_LOADS_FAILED,
    metrics.INFERENCE_SECONDS,
    metrics.INFERENCE_ROWS,
)
"""what has not happened yet is 0, not absent"""


class InferenceService:
    """Serves the models that `serving.inference.models` names, out of one store.

    Args:
        params: Parameters; `serving.inference`, and `certificate.checkpoint_days`.
        store: Where the models are published.
        trust: The trust file; it is read again with each look at the log.

    """

    def __init__(self, params: Params, store: Store, trust: Path) -> None:
        self.settings = params.serving.inference
        self.models = ServedModels(self.settings.models, self.settings.log_seconds)
        self.samples = Samples()
        for metric in _SHOWN_FROM_THE_START:
            for model in self.settings.models:
                self.samples.child(metric, model=model)
        self.batcher = Batcher(self.models, self.settings, self.samples)
        self._releases = ReleaseLog(store, trust, params.certificate.checkpoint_age)
        self._poller: Poller | None = None

    @property
    def alive(self) -> bool:
        """Whether both background threads are running."""
        return self.batcher.alive and self._poller is not None and self._poller.alive

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within: models are loaded and answer. Fetched files are removed at the end, also those of a killed server."""
        with private_folder(self.settings.folder or tempfile.gettempdir(), "serving.inference.folder") as folder:
            self._poller = Poller(self._releases, self.models, folder, self.settings.poll_seconds, self.samples)
            self.batcher.start()
            self._poller.start()
            try:
                yield
            finally:
                self._poller.stop()
                self.batcher.stop()
