"""`mbd keys` and `mbd log` as a user runs them."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, UsageError, VerificationError
from mbd.formats.layout import certificate_name
from mbd.log.append import append_leaf
from mbd.log.checkpoint import Inclusion, leaf_of
from mbd.log.tiles import Tile
from mbd.storage import open_store
from mbd.trust.keys import find_key
from mbd.trust.trust_file import read_trust
from tests.log.build import another_machine, refused_as_copy, refused_as_unknown, refused_as_untrusted
from tests.refusals import refused
from tests.trust.keys import Keys

KEYS = Path("build/keys")
STORE = "file://build/store"
ENVELOPES = (b"first", b"second", b"third")


def mbd(*arguments: str | Path, environment: dict[str, str] | None = None) -> Result:
    trusting = {"MBD_TRUST": str(KEYS / "trust.json")}
    result = CliRunner().invoke(group, list(map(str, arguments)), env=trusting | (environment or {}), prog_name="mbd")
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def logged() -> list[Inclusion]:
    """Keys at their default place, and three certificates in the log of the default store."""
    mbd("keys", "new")
    keys, store = Keys(KEYS), open_store(STORE)
    for envelope in ENVELOPES:
        store.create(certificate_name(leaf_of(envelope).hex()), envelope)
    return [append_leaf(store, leaf_of(envelope), keys.log, keys.trust) for envelope in ENVELOPES]


def test_existing_keys_are_never_overwritten() -> None:
    assert "back them up" in mbd("keys", "new").output
    before = {file.name: file.read_bytes() for file in KEYS.iterdir()}
    assert stat.S_IMODE((KEYS / "signer.pem").stat().st_mode) == 0o600
    assert mbd("keys", "new", "--if-none").exit_code == 0
    with refused(UsageError, file="build/keys/signer.pem"):
        mbd("keys", "new")
    assert before == {file.name: file.read_bytes() for file in KEYS.iterdir()}


def test_a_passphrase_is_never_an_argument() -> None:
    mbd("keys", "new", "--passphrase", environment={"MBD_KEY_PASSPHRASE": "open sesame"})
    for name in ("signer.pem", "log.pem"):
        assert b"ENCRYPTED" in (KEYS / name).read_bytes()
    with pytest.raises(UsageError, match="no terminal"):
        mbd("keys", "new", "--name", "bob", "--passphrase")


def test_a_folder_of_its_own_with_holders_and_threshold(tmp_path: Path) -> None:
    mbd("keys", "new", "--out", tmp_path, "--name", "ann", "--origin", "example.org/log", "--days", "30")
    mbd("keys", "new", "--out", tmp_path / "other", "--name", "bob")
    mbd("keys", "add", "bob", "--public", tmp_path / "other" / "bob.pub", "--keys", tmp_path)
    assert mbd("keys", "threshold", "2", "--keys", tmp_path).output == "signatures needed: 2\n"
    listed = mbd("keys", "list", "--keys", tmp_path).output
    assert "ann" in listed and "bob" in listed and "example.org/log+" in listed
    trust = json.loads(mbd("keys", "list", "--keys", tmp_path, "--json").output)
    assert (trust["threshold"], trust["log_origin"]) == (2, "example.org/log")


def test_a_copied_project_folder_that_has_gone_on_is_noticed_by_the_original(
    logged: list[Inclusion], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree("build", tmp_path / "copy" / "build")
    with monkeypatch.context() as there:
        there.chdir(tmp_path / "copy")
        append_leaf(open_store(STORE), leaf_of(b"in the copy"), Keys(KEYS).log, Keys(KEYS).trust)
    copy = f"file://{tmp_path}/copy/build/store"
    for command in (("certificate", "list"), ("log", "renew"), ("log", "check"), ("log", "list"), ("log", "show")):
        with refused_as_copy() as caught:
            mbd(*command)
        assert copy in caught.value.problem and "`mbd log adopt --store URL`" in str(caught.value.hint)
    assert mbd("log", "adopt", environment={"MBD_TRUST": ""}).exit_code == 1  # without a yes
    assert "4 entries, in " + copy in mbd("log", "adopt", "--yes").output
    assert "size 3" in mbd("log", "renew").output
    append_leaf(open_store(STORE), leaf_of(b"in the original"), Keys(KEYS).log, Keys(KEYS).trust)
    with refused_as_copy():
        mbd("certificate", "list", "--store", copy)


def test_another_machine_signs_the_log_after_it_was_said_that_it_is_the_first_time(
    logged: list[Inclusion], tmp_path: Path
) -> None:
    with another_machine(tmp_path / "another"):
        mbd("log", "check")
        with refused_as_unknown():
            mbd("log", "renew")
        assert mbd("log", "renew", "--first-time").exit_code == 0
        assert mbd("log", "renew").exit_code == 0


def test_rotate_and_revoke(logged: list[Inclusion]) -> None:
    old = find_key(read_trust(KEYS / "trust.json"), "signer")
    mbd("keys", "rotate", "signer", "--overlap-days", "2")
    output = mbd("keys", "revoke", old.id[:12], "--reason", "stolen", "--store", STORE).output
    assert "REVOKED" in output and "stolen" in output
    revoked = find_key(read_trust(KEYS / "trust.json"), old.id).revoked
    assert revoked and revoked.log_size == len(logged)
    assert "by the log's time" in mbd("keys", "revoke", "signer", "--reason", "lost").output
    assert "mbd log repair" in mbd("keys", "revoke", "log", "--reason", "lost").output


def test_the_log_is_listed_and_shown(logged: list[Inclusion]) -> None:
    rows = json.loads(mbd("log", "list", "--json").output)
    assert [(row["index"], row["sha256"]) for row in rows] == [
        (index, leaf_of(envelope).hex()) for index, envelope in enumerate(ENVELOPES)
    ]
    assert mbd("log", "list", "--last", "1").output.splitlines()[-1] == "3 entries"
    assert mbd("log", "show").output == logged[-1].checkpoint
    for entry in ("1", leaf_of(b"second").hex()):
        assert Inclusion.model_validate_json(mbd("log", "show", entry).output) == logged[1]


@pytest.mark.parametrize("entry", ["3", "0" * 64, "no digest"])
def test_an_unknown_entry_is_an_error(logged: list[Inclusion], entry: str) -> None:
    with refused(DataError, value=entry):
        mbd("log", "show", entry)


def test_a_log_is_checked_against_a_checkpoint_kept_earlier(logged: list[Inclusion]) -> None:
    kept = Path("kept")
    kept.write_text(logged[1].checkpoint)
    result = mbd("log", "check", "--since", kept)
    assert result.exit_code == 0
    assert "no problems" in result.output
    assert json.loads(mbd("log", "check", "--json").output)["certificates"] == 3
    with refused(DataError, file="none"):
        mbd("log", "check", "--since", "none")
    kept.write_text(logged[1].checkpoint.replace("\n2\n", "\n1\n"))
    with refused_as_untrusted("signature is wrong", VerificationError):
        mbd("log", "check", "--since", kept)


def _damage_tile() -> None:
    Path("build/store", Tile(0, 0, 3).name).write_bytes(bytes(96))


def _damage_certificate() -> None:
    Path("build/store", certificate_name(leaf_of(b"second").hex())).write_bytes(b"another")


@pytest.mark.parametrize("damage", [_damage_tile, _damage_certificate])
def test_damage_ends_with_4(logged: list[Inclusion], damage: Callable[[], None]) -> None:
    damage()
    result = mbd("log", "check")
    assert result.exit_code == 4
    assert "PROBLEM" in result.output


def test_a_log_is_repaired_after_its_key_was_lost(logged: list[Inclusion]) -> None:
    mbd("keys", "revoke", "log", "--reason", "lost")
    mbd("keys", "rotate", "log")
    with refused_as_untrusted("revoked"):
        mbd("log", "check")
    assert "signed again" in mbd("log", "repair").output
    assert mbd("log", "check").exit_code == 0


def test_a_store_without_a_log() -> None:
    mbd("keys", "new")
    with refused(UsageError, key="store.url"):
        mbd("log", "list")
    Path("build/store").mkdir(parents=True)
    assert "nothing has been logged" in mbd("log", "list").output
    assert mbd("log", "check").exit_code == 0
    with refused(DataError, file="file://build/store"):
        mbd("log", "show")
