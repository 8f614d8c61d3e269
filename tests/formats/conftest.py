"""Fixtures shared with the tests of certificates."""

from tests.certificate.conftest import model_workspace

__all__ = ["model_workspace"]
