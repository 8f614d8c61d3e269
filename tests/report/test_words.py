"""The certificate in words: ε in plain numbers."""

import pytest

from mbd.report.page.words import plain_scale


@pytest.mark.parametrize(
    ("epsilon", "times", "right"),
    [(0.0, "1", "50"), (1.0, "2.72", "73.11"), (8.0, "2,981", "99.97"), (1e4, "1e+304", "100")],
)
def test_epsilon_is_stated_as_times_likelier_and_right_in_a_hundred(epsilon: float, times: str, right: str) -> None:
    text = plain_scale(epsilon, 1e-5)
    assert f"at most {times} times likelier" in text
    assert f"right at most {right} times in 100" in text
