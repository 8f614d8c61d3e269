"""The metrics page, parsed as Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families

from mbd.monitoring.metrics import Metric


class ExporterPage:
    """The values of a metrics page by metric and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        self.values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        self._histograms = {family.name for family in families if family.type == "histogram"}

    @property
    def names(self) -> set[str]:
        """Names of all metrics; a histogram's samples have names of their own."""
        parts = {f"{name}_{part}" for name in self._histograms for part in ("bucket", "sum", "count")}
        return {name for name, _ in self.values} - parts | self._histograms

    def __getitem__(self, of: Metric) -> dict[tuple[str, ...], float]:
        """Return the values of a metric by the values of its labels, in their order."""
        return {
            tuple(dict(labels)[label] for label in of.labels): value
            for (name, labels), value in self.values.items()
            if name == of.name
        }
