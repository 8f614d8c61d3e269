"""A small model with its references, keys and a store: what is registered, and with whose keys."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from mbd.certificate.publish import Publisher
from mbd.certificate.register import Registrar
from mbd.history.history import History, ModelHistory
from mbd.history.replay import read_history
from mbd.params import Params, load_params
from mbd.production import register
from mbd.production.register import RegisterResult
from mbd.steps import features, train
from mbd.steps.publish import open_publisher
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from mbd.trust.keys import make_keys
from tests.certificate.authority import key_settings
from tests.certificate.keyed_store import KeyedStore
from tests.production.small import SETTINGS

NAME = "sentiment"


@dataclass(frozen=True)
class Production(KeyedStore):
    """A folder with data, a trained model, references, and a store of its own for each `name`."""

    name: str = "store"
    more: tuple[str, ...] = field(default=())

    @classmethod
    def make(cls, folder: Path, *more: str) -> "Production":
        """Make data, the model, one reference for each modality, a challenger, and keys."""
        found = cls(folder, more=more)
        make_keys(folder / "keys", "signer")
        features.run(found.params, folder / "features")
        train.run(found.params, folder / "features", folder / "model")
        for modality in ("text", "audio", "visual"):
            train.run(found.params, folder / "features", folder / f"without-{modality}", (modality,))
        other = load_params(None, [*found.settings, "training.seed=7"])
        train.run(other, folder / "features", folder / "challenger")
        return found

    def with_store(self, name: str, *more: str) -> Self:
        """Return the same with an empty store of its own, and further settings."""
        return replace(self, name=name, more=(*self.more, *more))

    @property
    def url(self) -> str:
        return f"file://{self.folder}/stores/{self.name}"

    @property
    def store(self) -> Store:
        return open_store(self.url, self.params.store)

    @property
    def private(self) -> Store:
        return open_private(self.url, self.params.store)

    @property
    def settings(self) -> tuple[str, ...]:
        return (*SETTINGS, *key_settings(self.folder), f"store.url={self.url}", *self.more)

    @cached_property
    def params(self) -> Params:
        return load_params(None, self.settings)

    @property
    def features(self) -> Path:
        return self.folder / "features"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def private_openings(self, digest: str) -> Path:
        """Return the file with what opens the commitments of a certificate."""
        return Path(self.params.certificate.private) / f"{digest}.json"

    def references(self, *modalities: str) -> list[Path]:
        """Return the folders of the references without each of these modalities (default: all)."""
        return [self.folder / f"without-{m}" for m in modalities or ("text", "audio", "visual")]

    def register(self, *modalities: str, model: Path | None = None, **options: Any) -> RegisterResult:
        """Register the model, or another one, with references without these modalities."""
        references = self.references(*modalities) if modalities else []
        return register.run(self.params, model or self.model, references, NAME, self.url, **options)

    def history(self) -> History:
        """Return what the log says, read without a cache."""
        return read_history(self.store, self.trust, cached=False)

    def known(self) -> ModelHistory:
        """Return what the log says of the model."""
        return self.history().require().model(NAME)

    def publisher(self, store: Store) -> Publisher:
        """Return what publishes into a store with these keys."""
        opened = open_publisher(self.params, self.url)
        return Publisher(store, opened.settings, opened.log_signer, opened.trust)

    def both(self) -> "BothParts":
        """Return the store and its private part as one, to count and to kill in both."""
        return BothParts(self.store, self.private)

    def registrar(self, both: Store) -> Registrar:
        """Return a registrar that uses one store for both parts."""
        return Registrar(self.publisher(both), both, self.params.certificate)


class BothParts:
    """A store and its private part: names of drafts are in the private one."""

    def __init__(self, published: Store, private: Store) -> None:
        self._published, self._private = published, private

    def __getattr__(self, name: str) -> Any:
        published, private = getattr(self._published, name), getattr(self._private, name)
        if not callable(published):
            return published

        def operation(*arguments: Any, **options: Any) -> Any:
            drafts = bool(arguments) and isinstance(arguments[0], str) and arguments[0].startswith("drafts/")
            return (private if drafts else published)(*arguments, **options)

        return operation


def digests(releases: Iterable[Any]) -> list[str]:
    """Return the digests of releases."""
    return [one.digest for one in releases]
