"""URLs without their credentials."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.urls import without_credentials, without_paths

SECRETS = st.text("abcXYZ019._~!$&'()*+,;=%@-", min_size=1).map(lambda text: f"s3cret{text}")


@settings(deadline=None, max_examples=200)
@given(SECRETS, SECRETS, st.sampled_from(["https", "http", "ssh", "git+ssh", "s3"]))
def test_user_and_password_are_gone_wherever_the_url_stands(user: str, password: str, scheme: str) -> None:
    text = f"cannot read '{scheme}://{user}:{password}@host:22/path', retry"
    assert without_credentials(text) == f"cannot read '{scheme}://host:22/path', retry"


def test_a_token_in_place_of_the_user_is_gone() -> None:
    assert without_credentials("https://ghp_token@host/x.git") == "https://host/x.git"


def test_what_is_no_secret_is_kept() -> None:
    for text in (
        "ssh://git@host/x.git",
        "git@host:x.git",
        "https://host/path@v1",
        "/folder/with@sign",
        "s3://bucket/prefix",
        "mail to tests@example.org",
    ):
        assert without_credentials(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot read /var/lib/x/model", "cannot read PATH"),
        ("it failed (in file:///srv/store), again", "it failed (in PATH), again"),
        ("the store file://build/store: empty", "the store PATH empty"),
        ("'/etc/passwd' and ~/x", "'PATH' and PATH"),
        (
            "https://example.org/a/b and 1/2 and text+audio/video",
            "https://example.org/a/b and 1/2 and text+audio/video",
        ),
    ],
)
def test_paths_of_this_machine_are_not_shown(text: str, shown: str) -> None:
    assert without_paths(text) == shown
