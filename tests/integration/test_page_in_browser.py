"""The page of a certificate in a real browser: genuine files are shown green, anything else is not."""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import rfc8785

from mbd.certificate.verification import from_folder, verify_bundle
from mbd.files import to_json
from mbd.formats.files import CERTIFICATE
from mbd.randomness import stream
from mbd.records import now
from mbd.report.page.html import script
from mbd.trust.trust_file import KeyRevocation, Trust, write_trust
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import make_home
from tests.certificate.tampering import (
    GONE,
    Files,
    TamperingCase,
    any_of,
    exchanged,
    in_fields,
    in_statement,
    read_tree,
)
from tests.integration.servers.chromium import Browser
from tests.integration.verification_panel import VerificationPanel, checked, shown
from tests.report.statements import SmallAuthority

pytestmark = pytest.mark.services

SHARED = ("signatures", "key validity", "log inclusion", "log checkpoint")
"""checks that the page and `mbd verify` make alike"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.make(make_home(tmp_path_factory.mktemp("home")), tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def published(authority: CertificateAuthority) -> dict[str, Path]:
    return {kind: authority.publish(kind) for kind in ("surgery", "exact")}


@pytest.fixture
def panel(authority: CertificateAuthority, published: dict[str, Path], tmp_path: Path) -> VerificationPanel:
    return VerificationPanel.set_up(
        tmp_path / "desk", published["surgery"], authority.trust_file, authority.model_workspace.deletion("surgery")
    )


@pytest.mark.parametrize("kind", ["surgery", "exact"])
def test_a_genuine_certificate_is_shown_green(
    browser: Browser, authority: CertificateAuthority, published: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    panel = VerificationPanel.set_up(
        tmp_path / "desk", published[kind], authority.trust_file, authority.model_workspace.deletion(kind)
    )
    browser.open(panel.page)
    assert browser.evaluate("[verdict.dataset.kind, checks.children.length]") == ["open", 0]
    browser.look(1280, "light")
    browser.choose("#files", panel.files)
    found = shown(browser)
    assert found.kind == "genuine", found
    assert found.words.startswith(
        "NOT VERIFIED yet: the certificate is genuine, and these are the weights that it certifies."
    )
    grey = {"log consistency", "not withdrawn", "not replaced", "structure, budget and gate"}
    assert {name for name, outcome in found.outcomes.items() if outcome != "passed"} == grey
    assert {found.outcomes[name] for name in grey} == {"not checkable"}
    passed = {found.colours[name] for name in found.colours if name not in grey}
    assert passed == {"rgb(11, 107, 67)"}
    assert browser.complaints() == []
    assert browser.requests() == [panel.page.as_uri()]


def test_files_can_come_one_after_the_other_by_dropping_and_from_a_folder(
    browser: Browser, panel: VerificationPanel
) -> None:
    browser.open(panel.page)
    browser.drop("#drop", [panel.folder / "bundle"])
    browser.wait_for("verdict.textContent.startsWith('A dropped folder cannot be read.')")
    browser.choose("#folder", [panel.folder / "bundle"])
    found = shown(browser)
    assert found.kind in {"warning", "critical"}
    assert found.reasons["trust file"].startswith("trust.json was not given")
    shutil.copyfile(panel.folder / "trust.json", panel.folder / "trust (1).json")  # as browsers name a second download
    browser.drop("#drop", [panel.folder / "trust (1).json", panel.folder / "model" / "model.safetensors"])
    browser.wait_for("verdict.dataset.kind === 'genuine'")
    browser.evaluate("clear.click()")
    assert browser.evaluate("[verdict.dataset.kind, checks.children.length]") == ["open", 0]


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def _weights(panel: VerificationPanel) -> None:
    _flipped(panel.folder / "model" / "model.safetensors")


def _statement(panel: VerificationPanel) -> None:
    file = panel.folder / "bundle" / CERTIFICATE
    envelope = json.loads(file.read_bytes())
    payload = base64.b64decode(envelope["payload"]).replace(b'"model":"sentiment"', b'"model":"sentimental"')
    file.write_bytes(rfc8785.dumps({**envelope, "payload": base64.b64encode(payload).decode()}))


def _signature(panel: VerificationPanel) -> None:
    file = panel.folder / "bundle" / CERTIFICATE
    envelope = json.loads(file.read_bytes())
    wrong = bytes(64)
    signatures = [{**one, "sig": base64.b64encode(wrong).decode()} for one in envelope["signatures"]]
    file.write_bytes(rfc8785.dumps({**envelope, "signatures": signatures}))


def _spaces(panel: VerificationPanel) -> None:
    file = panel.folder / "bundle" / CERTIFICATE
    file.write_text(json.dumps(json.loads(file.read_bytes())))


def _proof(**changes: object) -> Callable[[VerificationPanel], None]:
    def change(panel: VerificationPanel) -> None:
        file = panel.folder / "bundle" / "proof.json"
        file.write_text(to_json({**json.loads(file.read_bytes()), **changes}))

    return change


def _checkpoint(panel: VerificationPanel) -> None:
    file = panel.folder / "bundle" / "proof.json"
    proof = json.loads(file.read_bytes())
    origin, size, _, rest = proof["checkpoint"].split("\n", 3)
    root = base64.b64encode(bytes(32)).decode()
    file.write_text(to_json({**proof, "checkpoint": "\n".join((origin, size, root, rest))}))


def _other_trust(panel: VerificationPanel) -> None:
    other = SmallAuthority.make(panel.folder / "other")
    shutil.copyfile(other.trust_file, panel.folder / "trust.json")


def _gone(name: str) -> Callable[[VerificationPanel], None]:
    return lambda panel: (panel.folder / name).unlink()


@pytest.mark.parametrize(
    ("tamper", "outcome", "check"),
    [
        (_weights, "failed", "digest of model.safetensors"),
        (lambda panel: _flipped(panel.folder / "bundle" / "report.md"), "failed", "digest of report.md"),
        (_statement, "failed", "signatures"),
        (_signature, "failed", "signatures"),
        (_spaces, "failed", "canonical form"),
        (lambda panel: (panel.folder / "bundle" / CERTIFICATE).write_text("{}"), "failed", "certificate can be read"),
        (_proof(index=7, tree_size=9), "failed", "log inclusion"),
        (_proof(hashes=["0" * 64]), "failed", "log inclusion"),
        (_proof(more=1), "failed", "log inclusion"),
        (_checkpoint, "failed", "log checkpoint"),
        (_other_trust, "failed", "signatures"),
        (lambda panel: _flipped(panel.folder / "trust.json"), "failed", "trust file"),
        (_gone("trust.json"), "not checkable", "trust file"),
        (_gone("bundle/proof.json"), "not checkable", "log inclusion"),
        (_gone("bundle/report.md"), "not checkable", "digest of report.md"),
    ],
)
def test_what_was_tampered_with_is_shown_red(
    browser: Browser, panel: VerificationPanel, tamper: Callable[[VerificationPanel], object], outcome: str, check: str
) -> None:
    tamper(panel)
    browser.look(1280, "light")
    found = checked(browser, panel)
    assert found.kind in {"warning", "critical"}, found
    assert found.outcomes[check] == outcome
    verdict = "NOT VERIFIED" if outcome == "not checkable" or tamper is _other_trust else "FORGED OR DAMAGED"
    assert found.words.startswith(f"{verdict}: ")
    assert found.colours[check] == {"failed": "rgb(179, 32, 27)", "not checkable": "rgb(89, 99, 110)"}[outcome]


def test_without_weights_the_certificate_is_genuine_and_no_model_was_given(
    browser: Browser, panel: VerificationPanel
) -> None:
    _gone("model/model.safetensors")(panel)
    found = checked(browser, panel)
    assert found.kind == "genuine"
    assert "no model was given" in found.words


def test_another_certificate_than_that_of_the_page_is_told(
    browser: Browser, authority: CertificateAuthority, published: dict[str, Path], panel: VerificationPanel
) -> None:
    shutil.rmtree(panel.folder / "bundle")
    shutil.copytree(published["exact"], panel.folder / "bundle")
    shutil.rmtree(panel.folder / "model")
    shutil.copytree(authority.model_workspace.deletion("exact"), panel.folder / "model")
    found = checked(browser, panel)
    assert found.kind in {"warning", "critical"}
    assert [name for name, outcome in found.outcomes.items() if outcome == "failed"] == ["certificate of this page"]


def test_random_tampering_is_never_shown_as_genuine(
    browser: Browser, authority: CertificateAuthority, published: dict[str, Path], panel: VerificationPanel
) -> None:
    genuine = {**read_tree(panel.folder / "bundle", "bundle"), **read_tree(panel.folder / "model", "model")}
    trust = {"trust.json": (panel.folder / "trust.json").read_bytes()}
    others: list[Files] = [
        read_tree(published["exact"], "bundle") | read_tree(authority.model_workspace.deletion("exact"), "model")
    ]
    relevant = {name: content for name, content in (genuine | trust).items() if not name.endswith(_UNCHECKED)}
    scene = TamperingCase(panel.folder, relevant, others, panel.page.stem, authority.trust)
    whole = any_of(["bundle/certificate.json", "bundle/proof.json", "model/model.safetensors", "trust.json"])
    kinds = (whole, in_statement, in_fields("bundle/certificate.json"), in_fields("bundle/proof.json"), exchanged)
    draw = stream(8, "tampering in the browser")
    for number in range(60):
        mutated = kinds[number % len(kinds)](scene, draw)
        scene.lay_out(mutated)
        found = checked(browser, panel)
        scene.lay_out({name: relevant.get(name, GONE) for name in mutated})
        optional = {
            "model/model.safetensors",
            "bundle/model.json",
            "bundle/indices.safetensors",
        }  # of two there is a copy
        if all(content == GONE and name in optional for name, content in mutated.items()):
            assert found.kind == "genuine"
        else:
            assert found.kind in {"warning", "critical"}, (number, sorted(mutated))
    assert checked(browser, panel).kind == "genuine"


_UNCHECKED = ("step.json", "receipt.json", "deletion.json", "model/model.json", "model/indices.safetensors")


Change = Callable[[Trust], Trust]


def _with(purpose: str, **changes: object) -> Change:
    def change(trust: Trust) -> Trust:
        keys = [key.model_copy(update=changes) if key.purpose == purpose else key for key in trust.keys]
        return trust.model_copy(update={"keys": tuple(keys)})

    return change


def _revoked(hours: int, log_size: int | None) -> KeyRevocation:
    return KeyRevocation(at=now() + timedelta(hours=hours), reason="it was lost", log_size=log_size)


TRUSTS: dict[str, tuple[Change, bool]] = {
    "as it is": (lambda trust: trust, True),
    "both must sign": (lambda trust: trust.model_copy(update={"threshold": 2}), True),
    "the key is not valid yet": (_with("certificate", valid_from=now() + timedelta(hours=1)), False),
    "the key had expired": (
        _with("certificate", valid_until=now() - timedelta(hours=1), valid_from=now() - timedelta(hours=2)),
        False,
    ),
    "the key was revoked before": (_with("certificate", revoked=_revoked(-1, None)), False),
    "the key was revoked later": (_with("certificate", revoked=_revoked(1, None)), True),
    "the key was revoked before this entry": (_with("certificate", revoked=_revoked(1, 0)), False),
    "the key was revoked after this entry": (_with("certificate", revoked=_revoked(1, 1)), True),
    "the log's key was revoked": (_with("log", revoked=_revoked(1, None)), False),
    "the log's key is not valid yet": (_with("log", valid_from=now() + timedelta(hours=1)), False),
    "another log is trusted": (lambda trust: trust.model_copy(update={"log_origin": "another.example/log"}), False),
    "no signer is trusted": (lambda trust: trust.model_copy(update={"keys": trust.keys_for("log")}), False),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallAuthority, Path]:
    """An authority of two holders, and a certificate that is neither the first nor the last of its log."""
    authority = SmallAuthority.make(tmp_path_factory.mktemp("pair"), "first", "second")
    return authority, authority.publish("certified")


@pytest.mark.parametrize("name", TRUSTS)
def test_the_page_judges_keys_as_mbd_verify_does(
    browser: Browser, pair: tuple[SmallAuthority, Path], tmp_path: Path, name: str
) -> None:
    authority, bundle = pair
    change, good = TRUSTS[name]
    trust = change(authority.trust)
    write_trust(tmp_path / "trust.json", trust)
    panel = VerificationPanel.set_up(tmp_path / "desk", bundle, tmp_path / "trust.json")
    found = checked(browser, panel)
    verdict = verify_bundle(from_folder(bundle), trust)
    assert {name: found.outcomes[name] for name in SHARED} == {name: verdict.check(name).outcome for name in SHARED}
    assert (found.kind == "genuine") == good, found


def test_proofs_from_a_log_of_many_entries(browser: Browser, tmp_path: Path) -> None:
    authority = SmallAuthority.make(tmp_path / "authority")
    bundles = [authority.publish("exact", supersedes=f"{number:064x}") for number in range(12)]
    for number, bundle in enumerate(bundles):
        panel = VerificationPanel.set_up(tmp_path / f"desk-{number}", bundle, authority.trust_file)
        found = checked(browser, panel)
        assert found.kind == "genuine", found
        assert found.reasons["log inclusion"].startswith(f"entry {number} of the log ")


def test_an_audit_that_is_overdue_by_the_reader_s_clock_is_shown_red(
    browser: Browser, panel: VerificationPanel
) -> None:
    browser.open(panel.page, before="Date.now = () => 4102444800000")
    browser.choose("#files", panel.files)
    found = shown(browser)
    assert [name for name, outcome in found.outcomes.items() if outcome == "failed"] == ["re-audit date"]
    assert found.kind in {"warning", "critical"}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (
            "crypto.subtle.importKey = () => Promise.reject(new DOMException('no', 'NotSupportedError'))",
            "this browser's WebCrypto has no Ed25519",
        ),
        ("Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined })", "the browser gives this page no"),
    ],
)
def test_a_browser_that_cannot_check_signatures_says_so(
    browser: Browser, panel: VerificationPanel, before: str, reason: str
) -> None:
    browser.open(panel.page, before=before)
    browser.choose("#files", panel.files)
    found = shown(browser)
    assert found.kind in {"warning", "critical"}
    for name in SHARED:
        assert found.outcomes[name] == "not checkable"
        assert found.reasons[name].startswith(reason)
    assert found.outcomes["digest of model.safetensors"] == "passed"


def test_large_files_are_hashed_piece_by_piece(browser: Browser, panel: VerificationPanel) -> None:
    """The page's own SHA-256, which it uses for files beyond 256 MiB, against Python's."""
    browser.open(panel.page)
    functions = script().split("/** Check the given files")[0].partition('"use strict";')[2]
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 5 * 2**20 + 3):
        digest = browser.evaluate(
            f"(() => {{{functions}\n"
            f"const bytes = Uint8Array.from({{length: {size}}}, (_, place) => place * 31 + (place >> 8));"
            "return sha256File(new File([bytes], 'weights'), () => {}, -1); })()"
        )
        expected = bytes((place * 31 + (place >> 8)) % 256 for place in range(size))
        assert digest == hashlib.sha256(expected).hexdigest(), size
