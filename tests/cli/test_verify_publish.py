"""`mbd publish` and `mbd verify` as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mbd.files import sha256_file
from mbd.formats.files import CERTIFICATE
from mbd.verifier.verdict import fingerprint
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import make_home
from tests.command import run_mbd

HEAVY = ("torch", "boto3", "scipy", "sklearn", "matplotlib", "dvc", "kfp", "dp_accounting", "transformers", "h5py")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    authority = CertificateAuthority.make(
        make_home(tmp_path_factory.mktemp("home")), tmp_path_factory.mktemp("authority")
    )
    authority.bundle("exact")
    return authority


def settings(authority: CertificateAuthority) -> list[str]:
    return [part for setting in authority.settings for part in ("--set", setting)]


def test_from_a_bundle_to_a_verified_certificate(authority: CertificateAuthority, tmp_path: Path) -> None:
    url, out, model = f"file://{tmp_path}/store", tmp_path / "published", authority.model_workspace.deletion("exact")
    done = run_mbd(
        *("publish", authority.bundle("exact"), "--model", model, "--store", url, "--out", out),
        *settings(authority),
    )
    assert done.exit_code == 0, done.stderr
    digest = sha256_file(out / CERTIFICATE)
    assert f"anyone can verify it: mbd verify {url}/certificates/{digest}" in done.stdout
    assert "this store has no Object Lock" in done.stdout
    for source in ((out, "--store", url), (url,)):
        done = run_mbd("verify", *source, "--model", model, "--trust", authority.trust_file)
        assert done.exit_code == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"VERIFIED, not reproduced: certificate {digest}\n")
        assert f"{authority.trust_file}, fingerprint {fingerprint(authority.trust.digest)}\n" in done.stdout
        assert "states that model sentiment no longer holds audio; this can be checked by training" in done.stdout
        assert "  Checks             23 of 23 passed (-v lists all)\n" in done.stdout
        assert "log inclusion" not in done.stdout
    done = run_mbd("verify", url, "--model", model, "--trust", authority.trust_file, "-v")
    assert "  passed             log inclusion: entry 0 of the log" in done.stdout
    done = run_mbd("verify", out, "--offline", "--trust", authority.trust_file)
    assert done.exit_code == 43
    assert done.stdout.startswith(f"NOT VERIFIED: certificate {digest}; no model was given\n")
    done = run_mbd("verify", out, "--offline", "--trust", authority.trust_file, "--json")
    verdict = json.loads(done.stdout)
    assert (verdict["decision"], verdict["genuine"]) == ("not verified", True)
    assert verdict["summary"].endswith("; no model was given")
    assert (verdict["model"], verdict["store"]) == (None, None)
    assert (verdict["trust"], verdict["trust_file"]) == (authority.trust.digest, str(authority.trust_file))
    assert {check["outcome"] for check in verdict["checks"]} == {"passed", "not checkable"}
    reproduced = run_mbd(
        *(
            "verify",
            out,
            "--store",
            url,
            "--trust",
            authority.trust_file,
            "--reproduce",
            "--features",
            authority.model_workspace.folder / "data",
        ),
    )
    assert reproduced.exit_code == 0, reproduced.stdout
    assert reproduced.stdout.startswith(f"VERIFIED and reproduced: certificate {digest}; no model was given\n")


def test_each_verdict_has_an_exit_code_and_the_reason(authority: CertificateAuthority, tmp_path: Path) -> None:
    done = run_mbd("verify", authority.bundle("exact"), "--offline")
    assert done.exit_code == 43
    assert done.stdout.startswith("NOT VERIFIED: certificate ")
    assert "there is no trust file" in done.stdout
    (tmp_path / CERTIFICATE).write_text("{}")
    done = run_mbd("verify", tmp_path, "--offline", "--trust", authority.trust_file, "--json")
    assert done.exit_code == 44
    assert json.loads(done.stdout)["decision"] == "forged or damaged"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["verify", "nowhere"], 2, "hint: give --store URL, or --offline"),
        (["verify", "nowhere", "--offline"], 5, "there is no certificate in this folder"),
        (["verify", "ftp://x/y"], 2, "there is no store named 'ftp'"),
        (["verify", "nowhere", "--reproduce"], 2, "--reproduce and --features DIR belong together"),
        (["publish", "nowhere", "--model", "nowhere"], 5, "there is no readable trust file"),
    ],
)
def test_wrong_usage_is_an_error(arguments: list[str], code: int, said: str) -> None:
    done = run_mbd(*arguments)
    assert done.exit_code == code, done.stderr
    assert said in done.stderr


def test_an_auditor_needs_no_heavy_package(authority: CertificateAuthority, tmp_path: Path) -> None:
    """Run `mbd verify` where importing a heavy package fails, as in a bare install."""
    url, out, model = f"file://{tmp_path}/store", tmp_path / "published", authority.model_workspace.deletion("exact")
    bare = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Absent())
from mbd.cli import main
main()
"""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", bare, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    publishing = ("publish", authority.bundle("exact"), "--model", model, "--store", url, "--out", out)
    done = run(*publishing, *settings(authority))
    assert done.returncode == 0, done.stderr
    done = run("verify", url, "--model", model, "--trust", authority.trust_file)
    assert done.returncode == 0, done.stderr
    done = run("verify", "s3://bucket/prefix", "--trust", authority.trust_file)
    assert done.returncode == 1
    assert "this needs the package boto3" in done.stderr
