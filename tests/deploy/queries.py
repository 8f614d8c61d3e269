"""Which metrics and labels a query of Prometheus asks for."""

import re
from collections.abc import Iterator

_SELECTOR = re.compile(r"\b(mbd[_:][a-z_:]+)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def selectors(query: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every metric of a query with the labels that it is selected by."""
    for name, matchers in _SELECTOR.findall(query):
        yield name, set(_LABEL.findall(re.sub(r'"[^"]*"', '""', matchers)))
