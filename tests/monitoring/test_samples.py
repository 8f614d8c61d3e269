"""Samples: exactly the labels of their metric, in the text format of Prometheus."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from tests.monitoring.page import ExporterPage


def test_a_missing_or_unknown_label_is_refused() -> None:
    samples = Samples()
    for labels in ({}, {"state": "received", "id": "0123"}):
        with pytest.raises(ValueError, match="label names"):
            samples.set(metrics.REQUESTS, 1, model="sentiment", **labels)


def test_the_text_holds_only_these_samples_without_creation_times() -> None:
    samples = Samples()
    samples.count(metrics.SCAN_READ, 3)
    assert samples.text() == (
        "# HELP mbd_store_objects_read_total Objects read from the store because they were new or changed.\n"
        "# TYPE mbd_store_objects_read_total counter\n"
        "mbd_store_objects_read_total 3.0\n"
    )


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False), max_size=5))
def test_any_text_in_a_label_survives_the_text_format(values: dict[tuple[str, str], float]) -> None:
    samples = Samples()
    for (model, state), value in values.items():
        samples.set(metrics.REQUESTS, value, model=model, state=state)
    assert ExporterPage(samples.text())[metrics.REQUESTS] == values
