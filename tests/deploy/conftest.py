"""The reported metrics, collected once for all tests."""

import pytest

from tests.deploy.emitted import exporter_page, steps_pages
from tests.monitoring.page import ExporterPage


@pytest.fixture(scope="session")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> list[ExporterPage]:
    """The metrics page of the exporter, then those of steps."""
    pages = [exporter_page(tmp_path_factory.mktemp("shop")), *steps_pages(tmp_path_factory.mktemp("home"))]
    return [ExporterPage(text) for text in pages]
