"""Checks run at once, and none of them can stop the others."""

import threading
import time

import pytest

from mbd.doctor.finding import Check, Finding, State, ask_child, run_checks


def _ok(name: str) -> Check:
    return Check(lambda: [Finding(name, State.OK, "there")])


def test_findings_come_in_the_order_of_the_checks() -> None:
    def slow() -> list[Finding]:
        time.sleep(0.2)
        return [Finding("slow", State.OK, "there"), Finding("slower", State.WARNING, "hm")]

    findings = run_checks({"slow": Check(slow), "quick": _ok("quick")})
    assert [finding.name for finding in findings] == ["slow", "slower", "quick"]


def test_checks_that_hang_are_given_up_together() -> None:
    never = threading.Event()

    def hang() -> list[Finding]:
        never.wait()
        return []

    started = time.monotonic()
    findings = run_checks({name: Check(hang, seconds=0.3) for name in "abcd"} | {"e": _ok("e")})
    assert time.monotonic() - started < 1
    assert [finding.state for finding in findings] == [State.FAILED] * 4 + [State.OK]
    assert findings[0].found == "no answer within 0.3 s"
    assert findings[0].to_do
    never.set()


def test_a_check_that_breaks_is_a_finding_without_secrets() -> None:
    def broken() -> list[Finding]:
        raise ValueError("cannot read http://user:s3cret@host/x")

    (finding,) = run_checks({"broken": Check(broken)})
    assert finding.state is State.FAILED
    assert finding.found == "ValueError: cannot read http://host/x"


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        ask_child("mbd.doctor.no_such_module", seconds=10)
