"""A new site for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.site import Site, SiteClient


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.make(tmp_path)


@pytest.fixture
def client(site: Site) -> Iterator[SiteClient]:
    """A site with one certificate, from which audio was deleted."""
    site.golden.certificate("surgery")
    with site.client() as client:
        yield client
