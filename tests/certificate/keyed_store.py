"""A folder with keys, a trust file and a store."""

from dataclasses import dataclass
from pathlib import Path

from mbd.params.operations import CertificateSettings, StoreSettings
from mbd.storage import open_private, open_store
from mbd.storage.store import Store
from mbd.trust.commitments import LINEAGE_KEY, RequestKey, find_request_key
from mbd.trust.keys import TRUST
from mbd.trust.trust_file import Trust, read_trust


@dataclass(frozen=True)
class KeyedStore:
    """Keys, trust and a store in one folder."""

    folder: Path

    @property
    def trust_file(self) -> Path:
        return self.folder / "keys" / TRUST

    @property
    def trust(self) -> Trust:
        return read_trust(self.trust_file)

    @property
    def url(self) -> str:
        return f"file://{self.folder}/store"

    @property
    def store_settings(self) -> StoreSettings:
        return StoreSettings()

    @property
    def store(self) -> Store:
        return open_store(self.url, self.store_settings)

    @property
    def request_key(self) -> RequestKey | None:
        return find_request_key(CertificateSettings(lineage_key=str(self.folder / "keys" / LINEAGE_KEY)))

    @property
    def private(self) -> Store:
        """The private part of the store."""
        return open_private(self.url, self.store_settings)
