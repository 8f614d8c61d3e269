"""Checkpoints: signed notes with the size and root of the log, and the time."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import UsageError, VerificationError
from mbd.log.append import check_log_signer, sign_checkpoint
from mbd.log.checkpoint import note_key_id, parse_note, verifier_key, verify_checkpoint
from mbd.records import now
from mbd.trust.keys import find_key, revoke_key, rotate_key
from tests.log.build import refused_as_untrusted
from tests.refusals import refused
from tests.trust.keys import Keys, keys_in, leaf

ROOT = leaf(1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return keys_in(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def note(keys: Keys) -> str:
    return sign_checkpoint(42, ROOT, now(), keys.log, keys.trust)


def test_a_checkpoint_says_what_was_signed(keys: Keys, note: str) -> None:
    checkpoint = verify_checkpoint(note, keys.trust)
    assert (checkpoint.size, checkpoint.root, checkpoint.origin) == (42, ROOT, keys.trust.log_origin)
    assert checkpoint.key == find_key(keys.trust, "log")
    assert checkpoint.text == note
    origin = keys.trust.log_origin
    assert note.startswith(f"{origin}\n42\n{base64.b64encode(ROOT).decode()}\n\n— {origin} ")
    assert abs(checkpoint.time - datetime.now(UTC)) < timedelta(minutes=5)


def test_keys_have_the_names_that_other_tools_know_them_by() -> None:
    """The well-known key of Go's checksum database, in the form of its own documentation."""
    public = base64.b64decode("Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")[1:]
    known = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
    assert verifier_key("sum.golang.org", public) == known
    assert note_key_id("sum.golang.org", 1, public).hex() == "033de0ae"


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_no_changed_letter_is_accepted(keys: Keys, note: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(note) - 1))
    letter = data.draw(st.characters(codec="utf-8").filter(lambda value: value != note[place]))
    changes = [note[:place] + letter + note[place + 1 :], note[:place] + letter + note[place:], note[:place]]
    changes.append(note[:place] + note[place + 1 :])
    for changed in changes:
        if changed != note:
            with pytest.raises(VerificationError):
                verify_checkpoint(changed, keys.trust)


def test_signatures_of_witnesses_are_ignored(keys: Keys, note: str) -> None:
    witness = "— witness.example/w1 " + base64.b64encode(bytes(76)).decode() + "\n"
    assert verify_checkpoint(note + witness, keys.trust).size == 42
    many = "".join(witness.replace("w1", f"w{number}") for number in range(40))
    for witnesses, problem in ((witness * 2, "twice"), (many, "more than 32")):
        with refused_as_untrusted(problem, VerificationError):
            verify_checkpoint(note + witnesses, keys.trust)


def test_both_signatures_of_the_log_are_needed(keys: Keys, note: str) -> None:
    text, signatures = parse_note(note)
    for one in signatures:
        with refused_as_untrusted("two signatures is missing", VerificationError):
            verify_checkpoint(f"{text}\n{one.line}", keys.trust)


def test_another_log_and_another_key_are_refused(keys: Keys, note: str, tmp_path: Path) -> None:
    other = keys_in(tmp_path)
    with refused_as_untrusted("it is of the log"):
        verify_checkpoint(note, other.trust)
    renamed = other.trust.model_copy(update={"log_origin": keys.trust.log_origin})
    forged = sign_checkpoint(42, ROOT, now(), keys.signer(), keys.trust)  # a certificate key is no log key
    for text, trust in ((note, renamed), (forged, keys.trust)):
        with refused_as_untrusted("no trusted key of the log"):
            verify_checkpoint(text, trust)


def test_after_a_rotation_old_and_new_checkpoints_count_and_backdating_the_key_does_not(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    old = keys.log
    before = sign_checkpoint(1, ROOT, now(), old, keys.trust)
    rotate_key(tmp_path, "log", overlap=timedelta(0))
    after = sign_checkpoint(2, ROOT, now(), keys.log, keys.trust)
    assert verify_checkpoint(before, keys.trust).size == 1
    assert verify_checkpoint(after, keys.trust).size == 2
    late = sign_checkpoint(3, ROOT, now() + timedelta(hours=1), old, keys.trust)
    with refused_as_untrusted("expired"):
        verify_checkpoint(late, keys.trust)
    check_log_signer(keys.log, keys.trust, now())
    with refused(UsageError, key="certificate.log_signer"):
        check_log_signer(old, keys.trust, now() + timedelta(hours=1))


def test_nothing_that_a_revoked_key_of_the_log_has_signed_is_believed(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    note = sign_checkpoint(1, ROOT, now(), keys.log, keys.trust)
    revoke_key(tmp_path / "trust.json", "log", "it was on a lost disk", None)
    with refused_as_untrusted("it was on a lost disk"):
        verify_checkpoint(note, keys.trust)
