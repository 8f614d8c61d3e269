"""Style and script of a page, which stand in the page itself, and the policy that lets a browser run nothing else.

default-src 'none'; script-src 'sha256-…'; style-src 'sha256-…'        no network, no other script, no other style
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files

_SCRIPTS = ("bytes", "sha256", "canonical", "envelope", "trust", "log", "checks", "desk")
"""in the order in which they build on each other"""


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("style.css")


@cache
def script() -> str:
    """Return the script that verifies in the browser, in a scope of its own."""
    parts = "\n".join(_read(f"script/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n\n{parts}}})();\n'


def policy(*, with_script: bool) -> str:
    """Return the content security policy of a page."""
    sources = [f"style-src {_source(style())}"]
    if with_script:
        sources += [f"script-src {_source(script())}", "require-trusted-types-for 'script'", "trusted-types 'none'"]
    return "; ".join(["default-src 'none'", *sources, "base-uri 'none'", "form-action 'none'"])


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
