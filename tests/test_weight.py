"""A verifier is small: what it loads can be read, and nothing in it trains or is set by a user."""

import subprocess
import sys
from pathlib import Path

from tests.weight import loaded_by

MOST_LINES = 9_000
GOLDEN = Path(__file__).parent / "golden" / "certificates" / "v1" / "exact"


def test_the_verifier_loads_no_parameters_no_model_and_no_training() -> None:
    code = "import sys, mbd.certificate.verification; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mbd.params", "mbd.model", "mbd.training", "mbd.features"} & set(loaded)


def test_what_mbd_verify_loads_can_be_read_by_its_auditor() -> None:
    trust = ("--trust", GOLDEN / "trust.json")
    modules = loaded_by("verify", GOLDEN / "bundle", "--offline", "--model", GOLDEN / "model", *trust, codes=(0, 43))
    lines = sum(modules.values())
    print(f"mbd verify: {lines:,} lines in {len(modules)} modules")
    assert lines <= MOST_LINES
    assert not {"mbd.model", "mbd.training", "mbd.features"} & set(modules)
