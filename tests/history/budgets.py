"""Releases from the same weights whose ledger is lost in between, in any store; see `test_lineage`."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mbd.errors import DataError, ExitCode, VerificationError
from mbd.formats.deletion import read_deletion
from mbd.formats.guarantee import LineageBudget
from mbd.formats.layout import Receipt, certificate_name
from mbd.params import Params
from mbd.steps import certify, delete, evaluate, publish
from mbd.steps.certificates import restore_ledger
from mbd.storage import open_store
from mbd.storage.store import StoredObject
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import KINDS, leakage_record, write_leakage
from tests.log.build import another_machine
from tests.refusals import refused


@dataclass(frozen=True)
class Releases:
    """Certified deletions from one model; ledgers and outputs are in `folder`."""

    authority: CertificateAuthority
    folder: Path
    url: str
    settings: tuple[str, ...] = ()

    def params(self, *settings: str) -> Params:
        own = (f"store.url={self.url}", f"deletion.ledgers={self.folder}/ledgers", *self.settings)
        return self.authority.params(*KINDS["certified"][1], *own, *settings)

    @property
    def model(self) -> Path:
        return self.authority.model_workspace.folder / "model"

    def delete(self, name: str) -> LineageBudget:
        """Delete audio from the model, evaluate and attack."""
        data, out = self.authority.model_workspace.folder / "data", self.folder / name
        delete.run(self.params(), data, self.model, ["audio"], [], out)
        evaluate.run(self.params(), data, [out], self.folder / f"{name}-evaluated")
        record = read_deletion(out)
        assert record and record.budget
        write_leakage(self.folder / f"{name}-attacked", leakage_record(record))
        return record.budget

    def certify(self, name: str, *settings: str) -> Path:
        bundle = self.folder / f"{name}-bundle"
        inputs = (self.folder / name, self.folder / f"{name}-attacked", self.folder / f"{name}-evaluated")
        certify.run(self.params(*settings), *inputs, bundle)
        return bundle

    def publish(self, name: str) -> Receipt:
        return publish.run(self.params(), self.folder / f"{name}-bundle", self.folder / name, self.url).receipt

    def lose_ledger(self) -> None:
        shutil.rmtree(self.folder / "ledgers")


@contextmanager
def _hidden(releases: Releases, name: str) -> Iterator[None]:
    """Within: an object is not in the store, and this machine has never read the log."""
    store = open_store(releases.url, releases.params().store)
    content = store.read(name)
    store.delete([StoredObject(name, 0, "")])
    with another_machine(releases.folder / "another-cache"):
        yield
    store.create(name, content)


def check_a_lost_ledger_is_noticed_and_can_be_restored(releases: Releases, elsewhere: str) -> None:
    """Release, lose the ledger, release again from the same weights: refused until the first release is counted.

    Args:
        releases: deletions and their store.
        elsewhere: URL of an empty store, so that a certificate is signed without looking into the other one.
    """
    first = releases.delete("first")
    releases.certify("first")
    published = certificate_name(releases.publish("first").certificate)
    releases.lose_ledger()

    second = releases.delete("second")
    assert (second.rho_before, second.epsilon_after) == (0, first.epsilon_after)  # what must not be published
    with pytest.raises(DataError, match="lacks 1 charges") as caught:
        releases.certify("second")
    assert caught.value.exit_code == ExitCode.BAD_DATA
    assert "restore-ledger" in str(caught.value)
    with _hidden(releases, published), pytest.raises(VerificationError, match="cannot be known"):
        releases.certify("second")
    with another_machine(releases.folder / "a-third-cache"):
        releases.certify("second", f"store.url={elsewhere}")
    with refused(DataError, key="budget.lineage.rho_before"):
        releases.publish("second")
    # Entering the first release after the fact does not make the second one count it.
    restore_ledger(releases.params(), releases.model, releases.url)
    shutil.rmtree(releases.folder / "second-bundle")
    with refused(DataError, key="budget.lineage.rho_before"):
        releases.certify("second")

    releases.lose_ledger()
    restored = restore_ledger(releases.params(), releases.model, releases.url)
    assert restored.added == 1
    assert restored.rho == pytest.approx(first.rho_after)
    assert restore_ledger(releases.params(), releases.model, releases.url).added == 0
    third = releases.delete("third")
    assert third.rho_before == pytest.approx(first.rho_after)
    assert third.epsilon_after > first.epsilon_after
    releases.certify("third")
    receipt = releases.publish("third")
    assert releases.publish("third") == receipt
