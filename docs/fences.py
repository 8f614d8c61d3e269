"""A hook of MkDocs: the word after `sh` on a fence (services, unexecuted) is for the tests, not for readers."""

import re
from typing import Any

_FENCE = re.compile(r"^(\s*```sh) \w+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401
    """Return the page with plain `sh` fences."""
    return _FENCE.sub(r"\1", markdown)
