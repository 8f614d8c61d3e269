"""Samples: only with their labels, and as Prometheus reads them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from tests.monitoring.page import ExporterPage


def test_a_label_that_is_missing_or_unknown_is_refused() -> None:
    samples = Samples()
    with pytest.raises(ValueError, match="mbd_requests has the labels"):
        samples.set(metrics.REQUESTS, 1, model="sentiment")
    with pytest.raises(ValueError, match="mbd_requests has the labels"):
        samples.set(metrics.REQUESTS, 1, model="sentiment", state="received", id="0123")


def test_nothing_but_these_samples_is_told() -> None:
    samples = Samples()
    samples.set(metrics.SCAN_READ, 3)
    assert samples.text() == (
        "# HELP mbd_store_objects_read_total Objects that were read because they were new or changed.\n"
        "# TYPE mbd_store_objects_read_total counter\n"
        "mbd_store_objects_read_total 3.0\n"
    )


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False), max_size=5))
def test_any_text_in_a_label_arrives_as_it_is(values: dict[tuple[str, str], float]) -> None:
    samples = Samples()
    for (model, state), value in values.items():
        samples.set(metrics.REQUESTS, value, model=model, state=state)
    assert ExporterPage(samples.text())[metrics.REQUESTS] == values
