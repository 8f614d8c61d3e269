"""Tombstones as a person plants them who can write any object into a store and holds no key of the issuer."""

import json
from collections.abc import Iterable
from pathlib import Path

from mbd.formats.layout import certificate_name
from mbd.formats.statement import to_payload
from mbd.history.tombstones import PREFIX
from mbd.storage.store import Store
from mbd.trust.envelope import PAYLOAD_TYPE, sign
from mbd.trust.keys import load_signer, make_keys
from tests.monitoring.golden_store import purge_statement


def plant_tombstones(store: Store, private: Store, certificate: str, victims: Iterable[str], keys: Path) -> None:
    """Plant tombstones of files in every form: alone, in an unsigned list, in a list of a foreign key, and damaged.

    Args:
        store: the store.
        private: its private part.
        certificate: the certificate that the tombstones claim to belong to.
        victims: SHA-256 of files that should be removed.
        keys: folder for the attacker's own keys.
    """
    victims = list(victims)
    for victim in victims:
        stone = {"sha256": victim, "what": "weights", "certificate": certificate}
        for place in (store, private):
            place.create(f"tombstones/sha256/{victim}", json.dumps(stone).encode())
            place.create(f"tombstones/md5/{victim[:32]}", json.dumps(stone).encode())
    make_keys(keys, "signer")
    statement = purge_statement(private, certificate, victims)
    envelope = sign(to_payload(statement), PAYLOAD_TYPE, [load_signer(f"file:{keys}/signer.pem")])
    store.create(certificate_name(envelope.digest), envelope.to_bytes())
    private.create(f"{PREFIX}damaged", b"not a list")
