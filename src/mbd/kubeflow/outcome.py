"""How a run of a pipeline ended, from what it published.

The state that Kubeflow hands to an exit handler does not say: a run that succeeded may be COMPLETE, RUNNING or, if a
step was ever retried, FAILED. What counts is in the store, signed and logged: the certificate that names the run, and
for an audit the newest statement about the certificate.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from mbd.certificate.layout import latest_name, read_pointer
from mbd.certificate.state import entry
from mbd.certificate.trust import read_trust
from mbd.formats.statement import PurgeStatement, ReauditStatement
from mbd.params import Params
from mbd.records import now
from mbd.storage import open_store
from mbd.storage.store import NotThereError

RECENT = timedelta(hours=1)
"""the exit handler runs when the audit has just ended; an audit's statement does not name its run"""


def has_published(params: Params, pipeline: str, run: str, modalities: Sequence[str], *, purged: bool = False) -> bool:
    """Return whether a run has published what its pipeline is for.

    Args:
        params: they name store, model and trust file.
        pipeline: `delete` or `reaudit`.
        run: the run's id.
        modalities: what it is about.
        purged: a purge was requested, so a statement that it is complete has to be there, too.
    """
    store, trust, at = open_store(params.store.url, params.store), read_trust(Path(params.certificate.trust)), now()
    name = latest_name(params.certificate.model, modalities[0])
    try:
        digest = read_pointer(store.read(name), name).certificate
    except NotThereError:
        return False
    found = entry(store, digest, trust, at)
    if pipeline == "reaudit":
        audits = [one.predicate for one in found.about if isinstance(one, ReauditStatement)]
        return any(audit.passed and at - audit.issued < RECENT for audit in audits)
    claims = [one.predicate.erasure.claim for one in found.about if isinstance(one, PurgeStatement)]
    return found.statement.predicate.lineage.run_id == run and (not purged or "complete" in claims)
