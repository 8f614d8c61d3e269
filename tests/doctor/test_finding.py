"""Checks run at once, and none of them can stop the others."""

import threading
import time

import pytest

from mbd.doctor.finding import CheckState, DoctorCheck, DoctorFinding, ask_child, run_checks


def _ok(name: str) -> DoctorCheck:
    return DoctorCheck(lambda: [DoctorFinding(name, CheckState.OK, "there")])


def test_findings_come_in_the_order_of_the_checks() -> None:
    def slow() -> list[DoctorFinding]:
        time.sleep(0.2)
        return [DoctorFinding("slow", CheckState.OK, "there"), DoctorFinding("slower", CheckState.WARNING, "hm")]

    findings = run_checks({"slow": DoctorCheck(slow), "quick": _ok("quick")})
    assert [finding.name for finding in findings] == ["slow", "slower", "quick"]


def test_checks_that_hang_are_given_up_together() -> None:
    never = threading.Event()

    def hang() -> list[DoctorFinding]:
        never.wait()
        return []

    started = time.monotonic()
    findings = run_checks({name: DoctorCheck(hang, seconds=0.3) for name in "abcd"} | {"e": _ok("e")})
    assert time.monotonic() - started < 1
    assert [finding.state for finding in findings] == [CheckState.FAILED] * 4 + [CheckState.OK]
    assert findings[0].found == "no answer within 0.3 s"
    assert findings[0].to_do
    never.set()


def test_a_check_that_breaks_is_a_finding_without_secrets() -> None:
    def broken() -> list[DoctorFinding]:
        raise ValueError("cannot read http://user:s3cret@host/x")

    (finding,) = run_checks({"broken": DoctorCheck(broken)})
    assert finding.state is CheckState.FAILED
    assert finding.found == "ValueError: cannot read http://host/x"


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        ask_child("mbd.doctor.no_such_module", seconds=10)
