"""The ledger: costs add up, once for each release, and nothing is lost or changed unseen."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError, ExitCode, MbdError
from mbd.formats.guarantee import LedgerEntry, LineageBudget
from mbd.privacy.gaussian import analytic_sigma, epsilon_by_gaussian, zcdp
from mbd.privacy.ledger import BudgetExhaustedError, Ledger, StatedCharge, deletion_id, open_ledger
from tests.refusals import refused

LINEAGE, BEFORE, AFTER = "a" * 64, "b" * 64, "c" * 64
RHO = zcdp(analytic_sigma(1.0, 1e-5, 1.0), 1.0)


def name(number: int) -> str:
    return deletion_id(BEFORE, ("audio",), str(number))


def charge(ledger: Ledger, deletion: str, rho: float = RHO, limit: float = 8.0) -> LineageBudget:
    return ledger.charge(deletion, rho, 1e-5, limit, before=BEFORE, modalities=("audio",))


def deleted(folder: Path, number: int, rho: float = RHO) -> None:
    with open_ledger(folder, LINEAGE) as ledger:
        charge(ledger, name(number), rho, limit=1e9)
        ledger.release(name(number), AFTER)


def spent(folder: Path) -> float:
    with open_ledger(folder, LINEAGE) as ledger:
        return ledger.rho


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0, 5), max_size=6))
def test_costs_add_up(costs: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, rho in enumerate(costs):
            deleted(Path(folder), number, rho)
        assert spent(Path(folder)) == pytest.approx(sum(costs))


def test_a_charge_adds_to_what_was_spent(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        budget = charge(ledger, name(2))
        assert budget.entry == ledger.entries[-1].digest
        assert budget.epsilon_before == pytest.approx(1.0, rel=1e-6)
        assert budget.epsilon_after == pytest.approx(epsilon_by_gaussian(2 * RHO, 1e-5))
        assert budget.epsilon_after < 2
        assert ledger.entries[-1].epsilon == budget.epsilon_after
        assert ledger.rho == budget.rho_after == pytest.approx(2 * RHO)


def test_the_limit_is_a_hard_stop(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        bytes_before = ledger.file.read_bytes()
        with pytest.raises(BudgetExhaustedError) as refused:
            charge(ledger, name(2), limit=1.2)
        assert ledger.file.read_bytes() == bytes_before
    assert refused.value.exit_code == ExitCode.REFUSED
    assert "ε = 1 is spent" in str(refused.value)
    assert "1.465" in str(refused.value)
    assert "deletion.budget_limit" in str(refused.value)
    assert "lower deletion.epsilon" in str(refused.value)


def test_what_just_fits_is_allowed(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LINEAGE) as ledger:
        assert charge(ledger, name(1), limit=1.0).epsilon_after <= 1.0


def test_a_deletion_that_was_killed_and_run_again_is_counted_once(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from mbd.privacy.ledger import open_ledger\n"
        "folder, lineage, deletion, rho, before = sys.argv[1:]\n"
        "with open_ledger(Path(folder), lineage) as ledger:\n"
        "    ledger.charge(deletion, float(rho), 1e-5, 1.2, before=before, modalities=('audio',))\n"
        "    print('charged', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), LINEAGE, name(1), str(RHO), BEFORE]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "charged\n"
            os.kill(process.pid, signal.SIGKILL)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        assert charge(ledger, name(1), limit=1.2).epsilon_before == 0
        ledger.release(name(1), AFTER)
        assert [entry.event for entry in ledger.entries] == ["charge", "release"]
        assert ledger.rho == RHO


def test_a_release_entered_twice_is_one(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        assert ledger.release(name(1), AFTER) == ledger.head
        assert len(ledger.entries) == 2
        with pytest.raises(ValueError, match="no open charge"):
            ledger.release(name(1), BEFORE)


def test_a_second_release_of_the_same_deletion_costs_again(tmp_path: Path) -> None:
    for _ in range(2):
        deleted(tmp_path, 1)
    assert spent(tmp_path) == pytest.approx(2 * RHO)


def test_two_deletions_of_a_lineage_do_not_run_at_once(tmp_path: Path) -> None:
    with (
        open_ledger(tmp_path, LINEAGE),
        open_ledger(tmp_path, "d" * 64),
        pytest.raises(MbdError, match="another deletion"),
        open_ledger(tmp_path, LINEAGE),
    ):
        pass
    assert spent(tmp_path) == 0


def test_entries_are_chained_and_kept(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    first = (tmp_path / f"{LINEAGE}.jsonl").read_bytes()
    deleted(tmp_path, 2)
    assert (tmp_path / f"{LINEAGE}.jsonl").read_bytes().startswith(first)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        digests = [entry.digest for entry in ledger.entries]
        assert [entry.previous for entry in ledger.entries[1:]] == digests[:-1]
        assert ledger.head == digests[-1]
        assert ledger.entries[-1].after == AFTER


@pytest.fixture(scope="module")
def whole() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        deleted(Path(folder), 1)
        deleted(Path(folder), 2)
        return (Path(folder) / f"{LINEAGE}.jsonl").read_bytes()


def read(content: bytes) -> list[LedgerEntry]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.jsonl"
        file.write_bytes(content)
        return Ledger(file, LINEAGE).entries


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_change_goes_unseen(whole: bytes, data: st.DataObject) -> None:
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        entries = read(bytes(changed))
    except DataError as error:
        assert "ledger is damaged" in str(error)
    else:
        assert entries == read(whole)  # 1e-05 has become 1E-05


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_line_cut_off_is_seen(whole: bytes, data: st.DataObject) -> None:
    rest = whole[: data.draw(st.integers(0, len(whole) - 1))]
    if rest.endswith(b"\n"):
        assert read(rest) == read(whole)[: rest.count(b"\n")]
    else:
        with pytest.raises(DataError, match="cut off"):
            read(rest)


@pytest.mark.parametrize(
    ("lines", "message"),
    [([1, 2, 3], "does not continue"), ([0, 2, 3], "does not continue"), ([1, 0, 2, 3], "does not")],
)
def test_lines_that_are_missing_or_moved_are_seen(tmp_path: Path, lines: list[int], message: str) -> None:
    deleted(tmp_path, 1)
    deleted(tmp_path, 2)
    file = tmp_path / f"{LINEAGE}.jsonl"
    old = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(old[i] for i in lines))
    with pytest.raises(DataError, match=message):
        Ledger(file, LINEAGE)


def test_lines_lost_at_the_end_are_detected_by_known_entries(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    with open_ledger(tmp_path, LINEAGE) as ledger:
        known = ledger.head
    with open_ledger(tmp_path, LINEAGE, known=(known,)):
        pass
    file = tmp_path / f"{LINEAGE}.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    for _ in range(2):
        with refused(DataError, match="deletion record lists"), open_ledger(tmp_path, LINEAGE, known=(known,)):
            pass
        file.unlink(missing_ok=True)


def test_the_ledger_of_another_lineage_is_not_taken(tmp_path: Path) -> None:
    deleted(tmp_path, 1)
    other = "d" * 64
    (tmp_path / f"{LINEAGE}.jsonl").rename(tmp_path / f"{other}.jsonl")
    with refused(DataError, match="another lineage"), open_ledger(tmp_path, other):
        pass


def test_a_deletion_has_one_name_whatever_the_order_of_its_modalities() -> None:
    assert deletion_id(BEFORE, ("audio", "text"), "p") == deletion_id(BEFORE, ("text", "audio"), "p")
    assert len({deletion_id(BEFORE, ("audio",), "p"), deletion_id(AFTER, ("audio",), "p"), name(1), name(2)}) == 4


def stated(entry: str, rho_before: float, rho: float) -> StatedCharge:
    return StatedCharge(entry, ("audio",), rho, rho_before, rho_before + rho, epsilon=1.0, delta=1e-5)


def test_a_restored_charge_counts_once_and_with_what_was_spent_before_it(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LINEAGE) as ledger:
        ledger.restore(stated("1" * 64, 0.0, 0.5))
        ledger.restore(stated("2" * 64, 2.0, 0.5))  # 1.5 was charged in between and has no certificate
        ledger.restore(stated("1" * 64, 0.0, 0.5))
        assert ledger.rho == pytest.approx(2.5)
        assert charge(ledger, name(1), limit=1e9).rho_before == pytest.approx(2.5)
    with open_ledger(tmp_path, LINEAGE, known=("1" * 64, "2" * 64)) as ledger:
        assert len(ledger.entries) == 3


def test_the_digest_of_a_charge_confirms_no_guess_of_the_weights(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        with open_ledger(tmp_path / folder, LINEAGE) as ledger:
            charge(ledger, name(1))
    heads = {Ledger(tmp_path / folder / f"{LINEAGE}.jsonl", LINEAGE).head for folder in ("one", "other")}
    assert len(heads) == 2
