"""`leakage.json` of what is published: a certificate and a re-audit have its digest, and the store has the file."""

from mbd.errors import DataError, VerificationError
from mbd.formats.layout import object_name
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.statement import AnyStatement, ReauditStatement
from mbd.storage.store import Store


def read_leakage(store: Store, statement: AnyStatement) -> LeakageRecord | None:
    """Return `leakage.json` of a statement; None if it has none, or if the store no longer has the right one."""
    audited = statement.predicate.leakage if isinstance(statement, ReauditStatement) else None
    digest = audited or statement.digests.get(LEAKAGE)
    if digest is None:
        return None
    try:
        content = store.read(object_name(digest), sha256=digest)
        return LeakageRecord.from_bytes(content, "leakage record", file=object_name(digest))
    except (DataError, VerificationError):
        return None
