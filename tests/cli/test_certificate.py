"""`mbd certify` and `mbd certificate`, on a store in a folder."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, GateRefusedError, UsageError
from mbd.steps.certificates import PUBLISHED, Published
from tests.certificate.build import ModelWorkspace, make_home
from tests.refusals import refused


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


class CertificateWorkspace:
    """The commands, with the keys of a model workspace and a store of their own."""

    def __init__(self, model_workspace: ModelWorkspace, folder: Path) -> None:
        self.model_workspace, self.folder = model_workspace, folder
        self.settings = [
            f"--set=certificate.signers=['file:{model_workspace.folder}/keys/signer.pem']",
            f"--set=certificate.log_signer=file:{model_workspace.folder}/keys/log.pem",
            f"--set=certificate.trust={model_workspace.folder}/keys/trust.json",
            f"--set=certificate.private={folder}/private",
            f"--set=deletion.ledgers={model_workspace.folder}/ledgers",
        ]
        self.store = f"--store=file://{folder}/store"
        self.settings.append(f"--set=store.url=file://{folder}/store")

    def run(self, *arguments: object) -> Result:
        trusting = {"MBD_TRUST": f"{self.model_workspace.folder}/keys/trust.json"}
        result = CliRunner().invoke(group, [*map(str, arguments), *self.settings], env=trusting)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def certified(self, kind: str = "surgery") -> str:
        """Certify and publish a deletion; return the certificate's digest."""
        bundle, model_workspace = self.folder / f"bundle-{kind}", self.model_workspace
        attacks = [] if kind == "subjects" else ["--leakage", model_workspace.leakage(kind)]
        deletion, evaluation = model_workspace.deletion(kind), model_workspace.evaluation(kind)
        done = self.run("certify", "--deletion", deletion, "--evaluation", evaluation, *attacks, "--out", bundle)
        self.run("publish", bundle, "--model", deletion, self.store)
        return done.output.split()[1]


@pytest.fixture
def workspace(model_workspace: ModelWorkspace, tmp_path: Path) -> CertificateWorkspace:
    return CertificateWorkspace(model_workspace, tmp_path)


def test_certify_prints_what_was_signed_and_where_the_openings_are(workspace: CertificateWorkspace) -> None:
    deletion, leakage, evaluation = (
        getattr(workspace.model_workspace, part)("exact") for part in ("deletion", "leakage", "evaluation")
    )
    out = workspace.folder / "bundle"
    result = workspace.run(
        "certify", "--deletion", deletion, "--leakage", leakage, "--evaluation", evaluation, "--out", out
    )
    digest = result.output.split()[1]
    assert "exact deletion of audio" in result.output
    assert f"private/{digest}.json; back them up" in result.output
    assert (out / "certificate.json").exists()


def test_list_shows_the_state_of_every_certificate(workspace: CertificateWorkspace) -> None:
    with refused(UsageError, key="--store"):
        workspace.run("certificate", "list", workspace.store)
    (workspace.folder / "store").mkdir()
    assert "no certificate" in workspace.run("certificate", "list", workspace.store).output
    states = {workspace.certified("subjects"): "outdated", workspace.certified("exact"): "valid"}
    shown = workspace.run("certificate", "list", workspace.store).output
    assert all(digest[:16] in shown for digest in states)
    assert "audio of 1 person" in shown
    listed = json.loads(workspace.run("certificate", "list", workspace.store, "--json").stdout)
    assert {
        row["certificate"]: row["state"] for row in listed
    } == states  # the first model takes what was revoked later


def test_show_takes_a_bundle_or_a_digest(workspace: CertificateWorkspace) -> None:
    digest = workspace.certified()
    from_folder = workspace.run("certificate", "show", workspace.folder / "bundle-surgery").output
    from_store = workspace.run("certificate", "show", digest[:12], workspace.store).output
    assert from_folder.startswith("Modality Deletion Certificate\n")
    assert "Nothing was verified" in from_folder
    assert " VERIFIED. As of " in from_store
    stated = json.loads(workspace.run("certificate", "show", workspace.folder / "bundle-surgery", "--json").output)
    assert stated["predicate"]["deleted"]["modalities"] == ["audio"]
    for unknown in ("0" * 64, digest[:5]):
        with refused(DataError, value=unknown):
            workspace.run("certificate", "show", unknown, workspace.store)


def test_a_revoked_certificate_stays_and_no_longer_verifies(workspace: CertificateWorkspace) -> None:
    digest = workspace.certified()
    url = f"file://{workspace.folder}/store/certificates/{digest}"
    assert workspace.run("verify", url).exit_code == 0
    reason = ("--reason", "a wrong split was attacked")
    assert "is revoked" in workspace.run("certificate", "revoke", digest, *reason, workspace.store).output
    again = workspace.run("certificate", "revoke", digest, *reason, workspace.store)
    assert "it was revoked before" in again.stderr
    assert again.stdout == f"certificate {digest} is revoked\n"
    assert "revoked" in workspace.run("certificate", "list", workspace.store).output
    verdict = workspace.run("verify", url)
    assert verdict.exit_code == 42
    assert "a wrong split was attacked" in verdict.output


def test_supersede_names_both(workspace: CertificateWorkspace) -> None:
    old, new = workspace.certified("surgery"), workspace.certified("certified")
    workspace.run("certificate", "supersede", old, "--by", new, "--reason", "proven now", workspace.store)
    listed = json.loads(workspace.run("certificate", "list", workspace.store, "--json").stdout)
    assert {row["certificate"]: row["state"] for row in listed} == {old: "superseded", new: "valid"}


def test_new_attacks_extend_or_refute_a_certificate(workspace: CertificateWorkspace) -> None:
    digest = workspace.certified()
    attacks = workspace.model_workspace.leakage("surgery")
    passed = workspace.run(
        *("certificate", "reaudit", digest, "--leakage", attacks, workspace.store),
        "--set=certificate.reaudit_days=300",
    )
    assert "passed; attack again by" in passed.output
    leaking = workspace.model_workspace.leakage(
        "surgery", workspace.folder / "leak", decision="refused", reasons=("it leaks now",)
    )
    with pytest.raises(GateRefusedError, match=f"refutes certificate {digest}: it leaks now"):
        workspace.run("certificate", "reaudit", digest, "--leakage", leaking, workspace.store)
    listed = json.loads(workspace.run("certificate", "list", workspace.store, "--json").stdout)
    assert [row["state"] for row in listed] == ["refuted"]


def test_fetch_writes_the_released_model_and_its_certificate(workspace: CertificateWorkspace) -> None:
    digest, out = workspace.certified("exact"), workspace.folder / "fetched"
    printed = workspace.run("certificate", "fetch", "--modality", "audio", workspace.store, "--out", out).output
    assert digest in printed
    deleted = workspace.model_workspace.deletion("exact")
    for name in ("model.safetensors", "model.json", "indices.safetensors"):
        assert (out / name).read_bytes() == (deleted / name).read_bytes()
    published = Published.read(out / PUBLISHED, "", "")
    assert (published.certificate, published.modalities, published.revoked) == (digest, ("audio",), ("audio",))
    workspace.run("certificate", "fetch", digest[:6], workspace.store, "--out", out)  # again, by its digest


def test_fetch_needs_a_valid_certificate(workspace: CertificateWorkspace) -> None:
    out = workspace.folder / "fetched"
    (workspace.folder / "store").mkdir()
    with pytest.raises(DataError, match="no certificate was published for audio of sentiment"):
        workspace.run("certificate", "fetch", "--modality", "audio", workspace.store, "--out", out)
    with pytest.raises(UsageError, match="neither a certificate nor a modality"):
        workspace.run("certificate", "fetch", workspace.store, "--out", out)
    digest = workspace.certified()
    workspace.run("certificate", "revoke", digest, "--reason", "wrong split", workspace.store)
    with pytest.raises(UsageError, match="no longer valid: revoked"):
        workspace.run("certificate", "fetch", "--modality", "audio", workspace.store, "--out", out)
    assert not out.exists()


def test_without_keys_the_hint_is_how_to_create_them(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    workspace = CertificateWorkspace(model_workspace, tmp_path)
    workspace.settings = []
    with pytest.raises(UsageError, match="key cannot be read") as caught:
        workspace.certified()
    assert "mbd keys new" in str(caught.value)
