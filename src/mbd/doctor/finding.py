"""What a check finds, and how checks run: all at once, each within its time.

A check that hangs is given up, not waited for. Checks that load heavy packages run in a child process, where they
neither slow down the others nor keep this process alive.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from mbd.urls import without_credentials

ANSWER_SECONDS = 3.0
"""longest wait for a server's answer"""
LOADING_SECONDS = 30.0
"""longest wait for a heavy package to load (from a cold disk)"""


class CheckState(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True)
class DoctorFinding:
    """What one check found, and what to do about it."""

    name: str
    state: CheckState
    found: str
    to_do: str | None = None


@dataclass(frozen=True)
class DoctorCheck:
    """A named question, and how long its answer may take."""

    ask: Callable[[], Iterable[DoctorFinding]]
    seconds: float = ANSWER_SECONDS + 1


def run_checks(checks: Mapping[str, DoctorCheck]) -> list[DoctorFinding]:
    """Run all checks at the same time; return their findings in the order of `checks`."""
    answers: dict[str, list[DoctorFinding]] = {}

    def work(name: str, check: DoctorCheck) -> None:
        try:
            answers[name] = list(check.ask())
        except Exception as error:  # a check that breaks is a finding, not the end of the others
            reason = without_credentials(f"{type(error).__name__}: {error}")
            answers[name] = [DoctorFinding(name, CheckState.FAILED, reason, "the check itself broke; please report it")]

    started = time.monotonic()
    threads = {name: threading.Thread(target=work, args=(name, check), daemon=True) for name, check in checks.items()}
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, started + checks[name].seconds - time.monotonic()))
    return [finding for name, check in checks.items() for finding in answers.get(name) or [_silent(name, check)]]


def _silent(name: str, check: DoctorCheck) -> DoctorFinding:
    to_do = "check the address, the network and any firewall between"
    return DoctorFinding(name, CheckState.FAILED, f"no answer within {check.seconds:g} s", to_do)


def ask_child(module: str, *arguments: str, seconds: float = LOADING_SECONDS) -> list[DoctorFinding]:
    """Run `module` in a process of its own; it prints its findings (:func:`print_findings`)."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"not done within {seconds:g} s") from None
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return [DoctorFinding(**entry | {"state": CheckState(entry["state"])}) for entry in json.loads(done.stdout)]


def print_findings(findings: Iterable[DoctorFinding]) -> None:
    """Print findings for the process that called :func:`ask_child`."""
    sys.stdout.write(json.dumps([asdict(finding) for finding in findings]))
    sys.stdout.flush()
