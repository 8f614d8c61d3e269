"""A verifier is small: what it loads can be read, and nothing in it trains or is set by a user."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.golden_store import GOLDEN, GoldenStore
from tests.weight import loaded_by

MOST_LINES = {"offline": 8_000, "with a store": 9_800}


def test_the_verifier_loads_no_parameters_no_model_and_no_training() -> None:
    code = "import sys, mbd.certificate.verification; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mbd.params", "mbd.model", "mbd.training", "mbd.features"} & set(loaded)


@pytest.mark.parametrize("how", MOST_LINES)
def test_what_mbd_verify_loads_can_be_read_by_its_auditor(how: str, tmp_path: Path) -> None:
    golden = GOLDEN / "exact"
    source: tuple[object, ...] = (golden / "bundle", "--offline", "--trust", golden / "trust.json")
    if how != "offline":
        store = GoldenStore.open(tmp_path)
        store.files("exact")
        source = (f"{store.url}/certificates/{store.certificate('exact')}", "--trust", store.trust_file)
    modules = loaded_by("verify", *source, "--model", golden / "model", codes=(0, 43))
    lines = sum(modules.values())
    print(f"mbd verify {how}: {lines:,} lines in {len(modules)} modules")
    assert lines <= MOST_LINES[how]
    assert not {"mbd.model", "mbd.training", "mbd.features"} & set(modules)


def test_a_step_reads_the_list_of_purged_files_on_this_machine_without_the_log(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{'a' * 64}\n")
    code = f"""
import sys
from mbd.params.tree import load_reader_params
from mbd.steps.step import purged_digests
print(len(purged_digests(load_reader_params(None, ["purge.tombstones={tmp_path}/list"]))), *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    known, *loaded = done.stdout.split()
    assert known == "1"
    assert not {"mbd.history", "mbd.log", "mbd.trust", "mbd.storage"} & set(loaded)
