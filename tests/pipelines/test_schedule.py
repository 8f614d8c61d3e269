"""Cron expressions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import UsageError
from pipelines.schedule import checked_cron
from tests.refusals import refused


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("0 3 * * *", "0 0 3 * * *"),
        ("30 0 3 * * *", "30 0 3 * * *"),
        ("*/15 8-18 1,15 jan-mar ?", "0 */15 8-18 1,15 jan-mar ?"),
        ("0 9 ? * MON-FRI", "0 0 9 ? * MON-FRI"),
    ],
)
def test_a_schedule_has_six_fields_on_the_cluster(text: str, sent: str) -> None:
    assert checked_cron(text) == sent


@pytest.mark.parametrize(
    "text",
    ["", "* * *", "60 3 * * *", "0 24 * * *", "0 3 0 * *", "0 3 * 13 *", "0 3 * * 7", "? 3 * * *", "5-1 3 * * *",
     "*/0 3 * * *", "*-3 3 * * *", "0 3 * foo *", "0 3 * * * * *", "@daily"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_with_an_example(text: str) -> None:
    with refused(UsageError, key="--cron", hint="every night at three"):
        checked_cron(text)


@given(st.integers(0, 59), st.integers(0, 23), st.integers(1, 31), st.integers(1, 12), st.integers(0, 6))
@settings(deadline=None, max_examples=50)
def test_plain_times_are_schedules(minute: int, hour: int, day: int, month: int, weekday: int) -> None:
    text = f"{minute} {hour} {day} {month} {weekday}"
    assert checked_cron(text) == f"0 {text}"
