"""The reported metrics, collected once for all tests."""

import pytest

from tests.deploy.emitted import exporter_page, inference_page, steps_pages
from tests.monitoring.page import ExporterPage


@pytest.fixture(scope="session")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> list[ExporterPage]:
    """The metrics page of the exporter, then those of steps and of the model server."""
    folder = tmp_path_factory.mktemp
    pages = [exporter_page(folder("shop")), *steps_pages(folder("home")), inference_page(folder("served"))]
    return [ExporterPage(text) for text in pages]
