"""The metrics and labels in a PromQL query."""

import re
from collections.abc import Iterator

_SELECTOR = re.compile(r"\b(mbd[_:][a-z_:]+)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def selectors(query: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every metric in a query with the labels in its selector."""
    for name, matchers in _SELECTOR.findall(query):
        yield name, set(_LABEL.findall(re.sub(r'"[^"]*"', '""', matchers)))
