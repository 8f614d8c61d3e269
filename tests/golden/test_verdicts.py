"""What a person reads of each verdict: on the command line, in JSON, and at the head of the page.

`python -m tests.golden.test_verdicts` writes the golden texts in `tests/golden/verdicts/` again; those of the console,
which need a browser, `python -m tests.integration.console_verdicts`. Digests, dates, keys and folders differ from run
to run, so their place is named instead.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from mbd.formats.files import CERTIFICATE, PROOF
from mbd.formats.layout import certificate_name, proof_name
from mbd.formats.predicate import Issuer
from mbd.formats.verdict import VERDICTS, Decision
from mbd.params import load_params
from mbd.report.page.html import to_html
from mbd.report.page.markdown import to_markdown
from mbd.steps import verify
from mbd.steps.report import bundle_page
from mbd.verifier.bundle import Bundle
from mbd.verifier.verdict import Verdict, write_verdict
from tests.monitoring.golden_store import GOLDEN, GoldenStore

HERE = Path(__file__).parent / "verdicts"
_MASKS = (
    (r"[0-9a-f]{12,64}", "DIGEST"),
    (r"[0-9a-f]{4}( [0-9a-f]{4}){3}", "KEY"),
    (r"\d{4}-\d\d-\d\d( \d\d:\d\d UTC)?", "DATE"),
)


def bundle_of(golden_store: GoldenStore, digest: str) -> Path:
    """Lay out a published certificate as a person holds it, with the files of its golden one."""
    bundle = golden_store.folder / digest
    shutil.copytree(GOLDEN / "exact" / "bundle", bundle)
    (bundle / CERTIFICATE).write_bytes(golden_store.store.read(certificate_name(digest)))
    (bundle / PROOF).write_bytes(golden_store.store.read(proof_name(digest)))
    return bundle


def texts_of(verdict: Decision, folder: Path) -> dict[str, str]:
    """Return what is printed of a verdict, by the ending of its golden file."""
    golden_store = GoldenStore.open(folder)
    golden_store.files("exact")
    issuer = Issuer(name="Example Ltd", contact="privacy@example.org")
    bundle = bundle_of(golden_store, digest := golden_store.certificate("exact", model="own", issuer=issuer))
    if verdict == "replaced":
        golden_store.certificate("exact", model="own", issuer=issuer, supersedes=digest)
    if verdict == "withdrawn":
        golden_store.revoke(digest)
    if verdict == "forged or damaged":
        (bundle / "report.md").write_text("embellished")
    model, trust = GOLDEN / "exact" / "model", golden_store.trust_file
    trusted = GOLDEN / "exact" / "trust.json" if verdict == "not verified" else trust
    params, store = load_params(None, []), golden_store.url
    found = verify.run(params, str(bundle), model=model, trust=trusted, store=store)
    assert found.decision == verdict, found.problems
    page = bundle_page(Bundle(bundle), found)
    head = to_markdown(page).partition("\n## ")[0] + "\n"
    banner = re.findall(r'<title>.*?</title>|<p id="standing".*?</p>', to_html(page))
    texts = {"txt": write_verdict(found) + "\n", "json": _json(found), "md": head, "html": "\n".join(banner) + "\n"}
    return {ending: masked(text, folder) for ending, text in texts.items()}


def _json(found: Verdict) -> str:
    plain = json.loads(found.model_dump_json())
    kept = {name: plain[name] for name in ("decision", "genuine", "summary", "successor")}
    against = {check.name: check.verdict for check in found.problems}
    return json.dumps(kept | {"problems": against, "exit code": found.rules.exit_code}, indent=1) + "\n"


def masked(text: str, folder: Path) -> str:
    """Return a text with names in place of what differs from run to run."""
    text = text.replace(str(folder), "FOLDER").replace(str(GOLDEN), "GOLDEN")
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


def golden_file(verdict: Decision, ending: str) -> Path:
    """Return the golden text of a verdict."""
    return HERE / f"{verdict.replace(' ', '-')}.{ending}"


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_reads_as_it_did(verdict: Decision, tmp_path: Path) -> None:
    for ending, text in texts_of(verdict, tmp_path).items():
        golden = golden_file(verdict, ending)
        assert text == golden.read_text(encoding="utf-8"), golden.name


if __name__ == "__main__":
    for each in VERDICTS:
        with tempfile.TemporaryDirectory() as place:
            for suffix, content in texts_of(each, Path(place)).items():
                golden_file(each, suffix).write_text(content, encoding="utf-8")
