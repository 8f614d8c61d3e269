"""The verification panel of a page in a browser: the files of a certificate, its page, and what the panel shows."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from mbd.steps import report
from tests.integration.servers.chromium import Browser


@dataclass
class VerificationPanel:
    """A published certificate with its model and trust file, and the page made from it."""

    folder: Path
    page: Path

    @classmethod
    def set_up(cls, folder: Path, bundle: Path, trust: Path, model: Path | None = None) -> "VerificationPanel":
        """Lay everything out as a verifier has it."""
        shutil.copytree(bundle, folder / "bundle")
        shutil.copytree(model or bundle, folder / "model")
        shutil.copyfile(trust, folder / "trust.json")
        report.of_bundle(bundle, folder / "page.html")
        return cls(folder, folder / "page.html")

    @property
    def files(self) -> list[Path]:
        """What a person drops."""
        bundle = sorted((self.folder / "bundle").iterdir())
        names = {file.name for file in bundle}
        model = [file for file in (self.folder / "model").iterdir() if file.name not in names]
        trust = [file for file in [self.folder / "trust.json"] if file.exists()]
        return [*bundle, *model, *trust]


@dataclass(frozen=True)
class ShownVerdict:
    """What the page shows of its checks."""

    kind: str
    """`genuine`, or how grave the verdict is"""
    words: str
    outcomes: dict[str, str]
    reasons: dict[str, str]
    colours: dict[str, str]


def shown(browser: Browser) -> ShownVerdict:
    """Wait for the verdict and return all that is shown."""
    browser.wait_for("document.querySelectorAll('#checks li').length > 0")
    lines = browser.evaluate(
        "Array.from(document.querySelectorAll('#checks li'), (line) => ["
        "...['name', 'outcome', 'reason'].map((kind) => line.querySelector(`.${kind}`).textContent),"
        "getComputedStyle(line.querySelector('.outcome')).color])"
    )
    kind, words = browser.evaluate("[verdict.dataset.kind, verdict.textContent]")
    return ShownVerdict(
        kind,
        words,
        outcomes={name: outcome for name, outcome, _, _ in lines},
        reasons={name: reason for name, _, reason, _ in lines},
        colours={name: colour for name, _, _, colour in lines},
    )


def checked(browser: Browser, panel: VerificationPanel) -> ShownVerdict:
    """Open the page, choose all files, and return what is shown."""
    browser.open(panel.page)
    browser.choose("#files", panel.files)
    return shown(browser)
