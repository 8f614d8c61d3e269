"""Persons in requests over HTTP: their ids come in, and only references and ciphertext are kept.

That needs the data, to see whether a person is in it, and the lineage key, under which the id is encrypted. A server
without both takes no persons' requests. The same key opens the ids of all earlier requests: a server that only takes
requests and holds no key can give none away.
"""

from dataclasses import dataclass
from pathlib import Path

from mbd.features.contract import FeatureSet
from mbd.history.lineage import keep_subject
from mbd.storage.store import Store
from mbd.trust.lineage_key import LineageKey


@dataclass(frozen=True)
class Persons:
    """The persons in the data of the model `certificate.model`."""

    features: Path
    key: LineageKey

    def known(self, subject: str) -> bool:
        """Whether any row of the data belongs to a person."""
        return FeatureSet.open(self.features).has_group(subject)

    def keep(self, private: Store, subject: str) -> str:
        """Keep an id, encrypted, in the private part of a store; return the reference that a request names."""
        return keep_subject(private, subject, self.key)
