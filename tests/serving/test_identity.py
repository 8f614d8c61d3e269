"""Access tokens, and tokens of an OpenID provider."""

import hashlib
import json
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mbd.errors import UsageError
from mbd.formats.access import Role
from mbd.params.platform import OidcSettings
from mbd.records import now
from mbd.serving.identity import OpenId
from mbd.serving.tokens import TokenFile
from tests.refusals import refused
from tests.storage.web_server import serving


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "keys" / "tokens.json")


def test_only_the_hash_of_a_token_is_at_rest_and_only_its_owner_reads_the_file(tokens: TokenFile) -> None:
    token, entry = tokens.new("app", ["submit", "read", "submit"])
    text = tokens.file.read_text()
    assert token.rpartition("_")[2] not in text
    assert hashlib.sha256(token.encode()).hexdigest() in text
    assert stat.S_IMODE(tokens.file.stat().st_mode) == 0o600
    assert entry.roles == ("submit", "read")
    assert TokenFile(tokens.file).find(token, now()) == entry


def test_a_token_is_refused_once_it_has_expired_or_was_revoked(tokens: TokenFile) -> None:
    token, entry = tokens.new("app", ["read"], days=2)
    assert tokens.find(token, now() + timedelta(days=1)) == entry
    assert tokens.find(token, now() + timedelta(days=2, seconds=1)) is None
    running = TokenFile(tokens.file)
    assert running.find(token, now()) == entry
    tokens.revoke("app")
    assert running.find(token, now()) is None


def test_a_rotated_token_is_valid_for_a_while_beside_the_new_one(tokens: TokenFile) -> None:
    old, _ = tokens.new("app", ["read"])
    new, entry = tokens.rotate("app", timedelta(hours=1))
    for token, hours, valid in ((old, 0, True), (new, 0, True), (old, 2, False), (new, 2, True)):
        assert (tokens.find(token, now() + timedelta(hours=hours)) is not None) == valid
    assert (entry.name, entry.roles, entry.expires) == ("app", ("read",), None)


def test_a_name_that_is_none_and_an_unknown_token_are_usage_errors(tokens: TokenFile) -> None:
    with refused(UsageError, key="--name"):
        tokens.new("../x", ["read"])
    with refused(UsageError, key="TOKEN", value="nothing"):
        tokens.revoke("nothing")


ISSUER, AUDIENCE = "https://id.example", "mbd"


class Provider:
    """Issues tokens, and has its keys in a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.keys = file, dict[str, Any]()
        self.add("first", ec.generate_private_key(ec.SECP256R1()))

    def add(self, kid: str, key: Any) -> None:
        self.keys[kid] = key
        algorithms: dict[str, Any] = {"ES256": jwt.algorithms.ECAlgorithm, "RS256": jwt.algorithms.RSAAlgorithm}
        listed = []
        for name, one in self.keys.items():
            algorithm = "ES256" if isinstance(one, ec.EllipticCurvePrivateKey) else "RS256"
            document = json.loads(algorithms[algorithm].to_jwk(one.public_key()))
            listed.append(document | {"kid": name, "alg": algorithm, "use": "sig"})
        self.file.write_text(json.dumps({"keys": listed}))

    def token(self, kid: str = "first", algorithm: str = "ES256", **changes: Any) -> str:
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "u-1",
            "exp": datetime.now(UTC) + timedelta(minutes=5),
            "roles": ["submit", "admin"],
        }
        claims |= changes
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.keys[kid], algorithm, headers={"kid": kid})


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(tmp_path / "jwks.json")


def open_id(provider: Provider, **changes: Any) -> OpenId:
    settings = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(provider.file)} | changes
    return OpenId(OidcSettings(**settings))


def roles(verifier: OpenId, token: str) -> set[Role] | None:
    identity = verifier.identity(token)
    return set(identity.roles) if identity else None


def test_a_token_of_the_provider_has_the_roles_in_its_claim(provider: Provider) -> None:
    verifier = open_id(provider)
    assert roles(verifier, provider.token()) == {"submit"}
    assert roles(verifier, provider.token(roles="read operate x")) == {"read", "operate"}
    assert roles(verifier, provider.token(roles=None)) == set()
    assert roles(verifier, provider.token(roles={"read": True})) == set()
    assert roles(open_id(provider, claim="groups"), provider.token(groups=["read"])) == {"read"}


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"aud": "another"},
        {"exp": datetime.now(UTC) - timedelta(minutes=5)},
        {"exp": None},
        {"sub": None},
        {"aud": None},
        {"nbf": datetime.now(UTC) + timedelta(hours=1)},
    ],
)
def test_a_token_for_another_time_audience_or_issuer_is_refused(provider: Provider, changes: dict[str, Any]) -> None:
    assert open_id(provider).identity(provider.token(**changes)) is None


def test_forged_tokens_are_refused(provider: Provider, tmp_path: Path) -> None:
    verifier, genuine = open_id(provider), provider.token()
    other = Provider(tmp_path / "other.json")
    assert verifier.identity(other.token()) is None
    claims = jwt.decode(genuine, options={"verify_signature": False})
    assert verifier.identity(jwt.encode(claims, "", "none", headers={"kid": "first"})) is None
    public = provider.keys["first"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    as_secret = jwt.encode(claims, hashlib.sha256(pem).digest(), "HS256", headers={"kid": "first"})
    assert verifier.identity(as_secret) is None
    head, body, signature = genuine.split(".")
    for broken in (f"{head}.{body}.", f"{head}.{body}.{signature[:-4]}AAAA", "a.b.c", f"{head}..{signature}", "\ud800"):
        assert verifier.identity(broken) is None


def test_a_new_key_of_the_provider_is_found_and_a_lost_file_keeps_the_old_ones(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = open_id(provider)
    assert roles(verifier, provider.token()) == {"submit"}
    provider.add("second", rsa.generate_private_key(65537, 2048))
    assert verifier.identity(provider.token("second", "RS256")) is None  # read a moment ago
    later = time.monotonic() + 31
    monkeypatch.setattr("mbd.serving.identity.time.monotonic", lambda: later)
    assert roles(verifier, provider.token("second", "RS256")) == {"submit"}
    provider.file.unlink()
    monkeypatch.setattr("mbd.serving.identity.time.monotonic", lambda: later + 1000)
    assert roles(verifier, provider.token()) == {"submit"}


def test_the_keys_can_be_read_from_a_url(provider: Provider) -> None:
    with serving(provider.file.parent) as (url, _):
        assert roles(open_id(provider, jwks=f"{url}/jwks.json"), provider.token()) == {"submit"}


def test_an_incomplete_provider_is_refused_at_once(provider: Provider) -> None:
    with pytest.raises(ValueError, match="set issuer, audience and jwks"):
        OidcSettings(issuer=ISSUER)
    with pytest.raises(ValueError, match="use https"):
        OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks="http://id.example/jwks")
    with refused(UsageError, key="serving.oidc.jwks", value="nothing.json"):
        open_id(provider, jwks="nothing.json")
