"""Step `certificate restore-ledger`: enter what published certificates state into the budget ledger of their lineage.

For a ledger that was lost. What was charged and never certified is counted as far as a later certificate states it.
"""

from dataclasses import dataclass
from pathlib import Path

from mbd.formats.deletion import read_deletion
from mbd.history.lineage import restore, stated_charges
from mbd.history.replay import read_history
from mbd.model.checkpoint import load_model
from mbd.params import Params
from mbd.privacy.ledger import open_ledger
from mbd.steps.context import reads
from mbd.storage import open_store
from mbd.trust.lineage_key import read_lineage_key
from mbd.trust.trust_file import read_trust


@dataclass(frozen=True)
class RestoredLedger:
    """A ledger after what it lacked was entered."""

    ledger: Path
    added: int
    """number of charges that were added"""
    rho: float
    """what the lineage has spent"""


@reads("model")
def run(params: Params, model: Path, store: str) -> RestoredLedger:
    """Restore the ledger of the lineage of `model`, the first model or a later one with its deletion record."""
    deletion = read_deletion(model)
    first = deletion.lineage[0] if deletion else load_model(model)[0].sha256
    key, trust = read_lineage_key(params.certificate), read_trust(Path(params.certificate.trust))
    history = read_history(open_store(store, params.store), trust).require()
    stated = stated_charges(history, key.lineage(first))
    with open_ledger(Path(params.deletion.ledgers), first) as ledger:
        added = restore(ledger, stated)
        return RestoredLedger(ledger.file, added, ledger.rho)
