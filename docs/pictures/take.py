"""Take the pictures of a certificate: `python -m docs.pictures.take build/certificate.html` after `make run`.

    readme-certificate.png     the head of the page, as the README shows it
    certificate-phone.png      the same on a phone
    certificate-dark.png       the same for readers who prefer dark pages
    certificate-print-1.png    page one of the printed certificate; certificate-print-2.png: page two

Needs Chromium, and pdftoppm (poppler-utils) for the printed pages.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from mbd.report.page.html import print_pdf
from tests.integration.servers.chromium import Scheme, chromium

HERE = Path(__file__).parent
_LOOKS: tuple[tuple[str, int, int, Scheme], ...] = (
    ("readme-certificate", 1260, 840, "light"),
    ("certificate-phone", 390, 844, "light"),
    ("certificate-dark", 1260, 840, "dark"),
)


def _shrink(picture: Path) -> None:
    """Keep 128 colours, which is enough for text."""
    with Image.open(picture) as taken:
        taken.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(picture, optimize=True)


def main(page: Path, out: Path = HERE) -> None:
    """Take all pictures of a page."""
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        for name, width, height, scheme in _LOOKS:
            browser.look(width, scheme, height)
            browser.open(page.absolute())
            if browser.evaluate("document.documentElement.scrollWidth") != width:
                raise SystemExit(f"{page} does not fit {width} pixels")
            browser.screenshot(out / f"{name}.png", height)
            _shrink(out / f"{name}.png")
    with tempfile.TemporaryDirectory() as folder:
        pdf = Path(folder) / "page.pdf"
        pdf.write_bytes(print_pdf(page.read_text(encoding="utf-8")))
        for number in ("1", "2"):
            place = out / f"certificate-print-{number}"
            pages = ["-f", number, "-l", number, "-singlefile"]
            subprocess.run(["pdftoppm", "-r", "80", "-png", *pages, pdf, place], check=True)  # noqa: S603, S607
            _shrink(place.with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
