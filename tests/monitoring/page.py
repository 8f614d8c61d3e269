"""The metrics page, parsed as Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families

from mbd.monitoring.metrics import Metric


class ExporterPage:
    """The values of a metrics page by metric and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.values}

    def __getitem__(self, of: Metric) -> dict[tuple[str, ...], float]:
        """Return the values of a metric by the values of its labels, in their order."""
        return {
            tuple(dict(labels)[label] for label in of.labels): value
            for (name, labels), value in self.values.items()
            if name == of.name
        }
