"""`mbd certify` and `mbd certificate`, on a store in a folder."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, GateRefusedError, UsageError
from mbd.records import read_record
from mbd.steps.fetch import PUBLISHED, Published
from tests.certificate.build import Home, make_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("home"))


class Desk:
    """The commands, with the keys of a home and a store of one's own."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.settings = [
            f"--set=certificate.signers=['file:{home.folder}/keys/signer.pem']",
            f"--set=certificate.log_signer=file:{home.folder}/keys/log.pem",
            f"--set=certificate.trust={home.folder}/keys/trust.json",
            f"--set=certificate.private={folder}/private",
        ]
        self.store = f"--store=file://{folder}/store"

    def run(self, *arguments: object) -> Result:
        result = CliRunner().invoke(group, [*map(str, arguments), *self.settings])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def certified(self, kind: str = "surgery") -> str:
        """Certify and publish a deletion; return the certificate's digest."""
        bundle, home = self.folder / f"bundle-{kind}", self.home
        attacks = [] if kind == "subjects" else ["--leakage", home.leakage(kind)]
        deletion, evaluation = home.deletion(kind), home.evaluation(kind)
        done = self.run("certify", "--deletion", deletion, "--evaluation", evaluation, *attacks, "--out", bundle)
        self.run("publish", "--certificate", bundle, "--model", deletion, self.store)
        return done.output.split()[1]


@pytest.fixture
def desk(home: Home, tmp_path: Path) -> Desk:
    return Desk(home, tmp_path)


def test_certify_says_what_it_has_signed_and_where_secrets_are(desk: Desk) -> None:
    deletion, leakage, evaluation = (
        getattr(desk.home, part)("exact") for part in ("deletion", "leakage", "evaluation")
    )
    out = desk.folder / "bundle"
    result = desk.run("certify", "--deletion", deletion, "--leakage", leakage, "--evaluation", evaluation, "--out", out)
    digest = result.output.split()[1]
    assert "exact deletion of audio" in result.output
    assert f"private/{digest}.json: keep it" in result.output
    assert (out / "certificate.json").exists()


def test_list_tells_where_each_certificate_stands(desk: Desk) -> None:
    assert "no certificate" in desk.run("certificate", "list", desk.store).output
    digests = {desk.certified("surgery"), desk.certified("subjects")}
    shown = desk.run("certificate", "list", desk.store).output
    assert all(digest[:16] in shown for digest in digests)
    assert "audio of some subjects" in shown
    listed = json.loads(desk.run("certificate", "list", desk.store, "--json").output)
    assert {(row["certificate"], row["state"]) for row in listed} == {(digest, "valid") for digest in digests}


def test_show_takes_a_bundle_or_a_digest(desk: Desk) -> None:
    digest = desk.certified()
    from_folder = desk.run("certificate", "show", desk.folder / "bundle-surgery").output
    from_store = desk.run("certificate", "show", digest[:12], desk.store).output
    assert "# Modality Deletion Certificate" in from_folder
    assert "nothing of this has been verified" in from_folder
    assert "Where it stands: valid" in from_store
    stated = json.loads(desk.run("certificate", "show", desk.folder / "bundle-surgery", "--json").output)
    assert stated["predicate"]["deleted"]["modalities"] == ["audio"]
    with pytest.raises(DataError, match="no such certificate"):
        desk.run("certificate", "show", "0" * 64, desk.store)


def test_a_revoked_certificate_stays_and_no_longer_verifies(desk: Desk) -> None:
    digest = desk.certified()
    url = f"file://{desk.folder}/store/certificates/{digest}"
    assert desk.run("verify", url).exit_code == 0
    reason = ("--reason", "a wrong split was attacked")
    assert "is revoked" in desk.run("certificate", "revoke", "--certificate", digest, *reason, desk.store).output
    again = desk.run("certificate", "revoke", "--certificate", digest, *reason, desk.store)
    assert "revoked already" in again.output
    assert "revoked" in desk.run("certificate", "list", desk.store).output
    verdict = desk.run("verify", url)
    assert verdict.exit_code == 4
    assert "a wrong split was attacked" in verdict.output


def test_supersede_names_both(desk: Desk) -> None:
    old, new = desk.certified("surgery"), desk.certified("certified")
    desk.run("certificate", "supersede", "--certificate", old, "--by", new, "--reason", "proven now", desk.store)
    listed = json.loads(desk.run("certificate", "list", desk.store, "--json").output)
    assert {row["certificate"]: row["state"] for row in listed} == {old: "superseded", new: "valid"}


def test_reaudit_tells_of_new_attacks_for_and_against(desk: Desk) -> None:
    digest = desk.certified()
    attacks = desk.home.leakage("surgery")
    passed = desk.run(
        *("certificate", "reaudit", "--certificate", digest, "--leakage", attacks, desk.store),
        "--set=certificate.reaudit_days=400",
    )
    assert "passed; attack again by" in passed.output
    leaking = desk.home.leakage("surgery", desk.folder / "leak", decision="refused", reasons=("it leaks now",))
    with pytest.raises(GateRefusedError, match=f"refutes certificate {digest}: it leaks now"):
        desk.run("certificate", "reaudit", "--certificate", digest, "--leakage", leaking, desk.store)
    listed = json.loads(desk.run("certificate", "list", desk.store, "--json").output)
    assert [row["state"] for row in listed] == ["refuted"]


def test_fetch_brings_the_released_model_and_says_what_it_is(desk: Desk) -> None:
    digest, out = desk.certified("exact"), desk.folder / "fetched"
    told = desk.run("certificate", "fetch", "--modality", "audio", desk.store, "--out", out).output
    assert digest in told
    deleted = desk.home.deletion("exact")
    for name in ("model.safetensors", "model.json", "indices.safetensors"):
        assert (out / name).read_bytes() == (deleted / name).read_bytes()
    published = read_record(out / PUBLISHED, Published, "", "")
    assert (published.certificate, published.modalities, published.revoked) == (digest, ("audio",), ("audio",))
    desk.run("certificate", "fetch", "--certificate", digest[:12], desk.store, "--out", out)  # again, by its digest


def test_fetch_finds_nothing_where_nothing_stands(desk: Desk) -> None:
    out = desk.folder / "fetched"
    with pytest.raises(DataError, match="no certificate was published for audio of sentiment"):
        desk.run("certificate", "fetch", "--modality", "audio", desk.store, "--out", out)
    with pytest.raises(UsageError, match="neither a certificate nor a modality"):
        desk.run("certificate", "fetch", desk.store, "--out", out)
    digest = desk.certified()
    desk.run("certificate", "revoke", "--certificate", digest, "--reason", "wrong split", desk.store)
    with pytest.raises(UsageError, match="no longer stands: revoked"):
        desk.run("certificate", "fetch", "--modality", "audio", desk.store, "--out", out)
    assert not out.exists()


def test_without_keys_the_way_to_make_them_is_told(home: Home, tmp_path: Path) -> None:
    desk = Desk(home, tmp_path)
    desk.settings = []
    with pytest.raises(UsageError, match="private key") as caught:
        desk.certified()
    assert "mbd keys new" in str(caught.value)
