"""A page as PDF, by the browser or the library that is here: Chromium, or else WeasyPrint.

Neither is installed with this package. The page is printed as its style sheet says: page one can be filed on its own.
"""

import importlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from mbd.errors import MbdError

Paper = Literal["A4", "letter"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 120


def print_pdf(html: str) -> bytes:
    """Return a page that :func:`mbd.report.page.html.to_html` made as PDF.

    Raises:
        MbdError: There is nothing to print with, or it failed.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser:
        return _by_browser(browser, html)
    try:
        weasyprint = importlib.import_module("weasyprint")
    except ImportError as error:
        hint = "install Chromium or WeasyPrint, or print the HTML page from a browser"
        raise MbdError("there is no program here that prints a page as PDF", hint=hint) from error
    return bytes(weasyprint.HTML(string=html).write_pdf())


def _by_browser(browser: str, html: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="mbd-pdf-") as folder:
        page, pdf = Path(folder) / "page.html", Path(folder) / "page.pdf"
        page.write_text(html, encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with its sandbox
        command = [browser, *options, f"--user-data-dir={folder}/profile", f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            done = subprocess.run(  # noqa: S603 -- a browser of this machine, with a page that was made here
                command, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise MbdError(f"printing took longer than {_PATIENCE} seconds", value=browser) from error
        if not pdf.is_file():
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise MbdError(f"the page could not be printed: {lines[-1]}", value=browser)
        return pdf.read_bytes()
