"""The programs without start-up behave like those with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.waiting import wait_until


def python(quick: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [quick / "bin" / "python", *arguments],
        input="print(6 * 7)",
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("sys.exit('no')", 1), ("1 / 0", 1), ("os.abort()", -6)],
)
def test_they_end_as_the_real_one_ends(quick: Path, end: str, code: int) -> None:
    script = f"import os, sys; print(sys.argv, flush=True); {end}"
    done = python(quick, "-c", script, "x")
    real = subprocess.run([sys.executable, "-c", script, "x"], capture_output=True, text=True, check=False)
    assert done.returncode == real.returncode == code
    assert done.stdout == real.stdout
    assert done.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_they_read_standard_input_and_take_folder_and_environment(quick: Path, tmp_path: Path) -> None:
    assert python(quick, "-").stdout == "42\n"
    (tmp_path / "beside.py").write_text("print(__name__, __import__('os').environ['GIVEN'])")
    for arguments in (("-m", "beside"), ("-c", "import runpy; runpy.run_module('beside', run_name='__main__')")):
        done = python(quick, *arguments, PYTHONPATH=str(tmp_path), GIVEN="this")
        assert done.stdout == "__main__ this\n", done.stderr


def test_a_warning_is_an_error_where_the_environment_says_so(quick: Path) -> None:
    script = "import warnings; warnings.warn('careful')"
    assert python(quick, "-c", script).returncode == 0
    assert python(quick, "-c", script, PYTHONWARNINGS="error").returncode == 1


def test_a_program_that_is_killed_takes_its_fork_along(quick: Path) -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([quick / "bin" / "python", "-c", script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        fork = Path("/proc", program.stdout.readline().strip())
        assert fork.exists()
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not fork.exists())
