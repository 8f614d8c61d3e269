"""What attacks found, read over seeds."""

import pytest

from studies.audits import OFFERED, WHITE_BOX, attacks_refuse, epsilon_of, gives_away, kind_of, refused
from studies.layout import Layout


def test_a_deletion_is_known_by_its_record_not_by_its_name(revoked: Layout) -> None:
    kinds = {name: kind_of(record) for name in revoked.plan.deletions for record in revoked.deletions(name).values()}
    assert kinds == {
        "surgery": "surgery",
        "uncut": "uncut",
        "printed-1": "printed",
        "certified-1": "certified",
        "exact": "exact",
    }


def test_only_noise_has_an_epsilon(revoked: Layout) -> None:
    asked = {name: epsilon_of(revoked.deletions(name)[0]) for name in revoked.plan.deletions}
    assert asked == {"surgery": None, "uncut": None, "printed-1": 1.0, "certified-1": 1.0, "exact": None}


def test_a_measure_is_what_leakage_json_says(revoked: Layout) -> None:
    records = revoked.attacks("uncut")
    found = next(a for a in records[0].attacks if a.id == "whitebox.accuracy_fed")
    assert found.after
    assert WHITE_BOX.values(records, "after") == [pytest.approx(100 * found.after.value)]
    assert OFFERED.spread(records, "reference").mean == 0


def test_refusals_are_those_of_attacks_and_utility_not_of_the_public_seed(revoked: Layout) -> None:
    assert revoked.attacks("surgery")[0].decision == "refused"
    assert attacks_refuse(revoked.attacks("surgery")) == []
    assert "pathway" in attacks_refuse(revoked.attacks("uncut"))
    assert gives_away(revoked.attacks("uncut"), "pathway")
    assert not gives_away(revoked.attacks("exact"), "pathway")
    assert refused(revoked.attacks("uncut"))["pathway"] == 1
    assert set(refused(revoked.attacks("exact"))) >= {"pathway", "whitebox", "utility"}
