"""Error and order of the importance proxies."""

from pathlib import Path

import numpy as np
import pytest

from studies import printed, proxy
from studies.increments import CHOSEN, PROXIES, Increments
from studies.layout import Layout
from studies.leave_one_out import ProxyQuality
from studies.proxy import Quality, quality
from tests.studies.deletions import about, bytes_of


def test_the_table_has_both_proxies_on_both_samples(revoked: Layout, tmp_path: Path) -> None:
    outcome = proxy.study(revoked)
    assert len(outcome.tables[0].rows) == 4
    assert set(outcome.figures) == {"proxy-chosen", "proxy-all"}
    one, two = (bytes_of(proxy.study(revoked), tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one["proxy-all.png"].startswith(b"\x89PNG")


def measured(swiftprune: list[float], true: list[float]) -> Increments:
    """One sample in which Gauss–Newton is right."""
    increments = np.array(true)
    proxies = {"swiftprune": np.array(swiftprune), "gauss_newton": increments}
    facts = ProxyQuality(increments, proxies, 1, "x", 0.99).facts()
    return Increments({CHOSEN: facts}, {CHOSEN: {**proxies, "increment": increments}})


def qualities(found: Increments) -> list[Quality]:
    return [quality("mosi", CHOSEN, name, [found]) for name in PROXIES]


def test_a_good_proxy_is_found_to_be_one() -> None:
    found = measured([1.0, 2.0, 3.0, 4.0], [1.0, 1.99, 2.98, 3.97])
    good = proxy.findings(qualities(found), found)
    assert {
        about(good, words).verdict for words in ("errs by", "lie within", "OverDelete(0.1) is", "orders", "upper")
    } == {"holds"}


def test_a_bad_one_is_not() -> None:
    found = measured([4.0, 3.0, 2.0, 0.1], [-1.0, 0.5, 1.0, 3.0])
    bad = proxy.findings(qualities(found), found)
    for words in ("errs by", "lie within", "OverDelete(0.1) is", "orders", "upper"):
        assert about(bad, words).verdict == "does not hold"
    assert "-1.00" in about(bad, "orders").reason
    assert "1.000" in about(bad, "orders").reason


def test_over_delete_is_told_of_what_costs_something_too() -> None:
    found = qualities(measured([1.0, 1.0], [-1.0, 1.0]))[0]
    assert found.over_delete.mean == 50
    assert found.over_delete_of_positive
    assert found.over_delete_of_positive.mean == 0


def test_increments_without_any_order() -> None:
    found = measured([1.0, 2.0], [0.0, 0.0])
    assert about(proxy.findings(qualities(found), found), "orders").verdict == "not comparable"
    assert qualities(found)[0].over_delete_of_positive is None


def test_the_printed_table_is_beyond_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured([1.0, 2.0], [1.0, 2.0])
    broken = about(proxy.findings(qualities(found), found), "Table A2")
    assert broken.verdict == "does not hold"
    assert "CMU-MOSEI 8.2 % error" in broken.reason
    kept = {"mosi": printed.PROXY["mosi"]}
    monkeypatch.setattr(printed, "PROXY", kept)
    assert about(proxy.findings(qualities(found), found), "Table A2").verdict == "holds"
