"""What the console says of a certificate under each verdict; run as a module it writes the golden texts again."""

import tempfile
from pathlib import Path

from mbd.formats.layout import certificate_name
from mbd.formats.predicate import Issuer
from mbd.formats.verdict import VERDICTS, Decision
from tests.golden.test_verdicts import golden_file, masked
from tests.integration.console_pictures import open_page
from tests.integration.servers.chromium import Browser, chromium
from tests.monitoring.golden_store import days_from_now
from tests.serving.site import Site

ENDING = "console"
_SAYS = "[...document.querySelectorAll('.lead, main [role=alert], dt, dd')].map((each) => each.innerText).join('\\n')"


def say(browser: Browser, verdict: Decision, folder: Path) -> str:
    """Return what the page of a certificate with this verdict says."""
    site = Site.make(folder, "serving.rate_per_minute=0")
    golden, issuer = site.golden, Issuer(name="Example Ltd", contact="privacy@example.org")
    issued, due = (days_from_now(days) for days in ((-2, -1) if verdict == "not verified" else (0, 90)))
    digest = golden.certificate("exact", model="own", issuer=issuer, issued=issued, reaudit_by=due)
    if verdict == "replaced":
        golden.certificate("exact", model="own", issuer=issuer, supersedes=digest)
    if verdict == "withdrawn":
        golden.revoke(digest)
    if verdict == "forged or damaged":
        (folder / "store" / certificate_name(digest)).write_bytes(golden.store.read(certificate_name(digest))[:-9])
    with site.process() as (url, _):
        open_page(browser, f"{url}/console/certificates/{digest}")
        return masked(browser.evaluate(_SAYS).replace(url, "SERVER"), folder) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, chromium(Path(place)) as tab:
        for each in VERDICTS:
            golden_file(each, ENDING).write_text(say(tab, each, Path(place) / each), encoding="utf-8")
