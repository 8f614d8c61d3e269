"""Parameters of `mbd serve`: who may do what, how much, who is notified, and which models answer."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from mbd.names import Name
from mbd.params.base import Count, Settings
from mbd.params.operations import Url

Public = Literal["store", "metrics", "inference"]
PUBLIC: tuple[Public, ...] = get_args(Public)


def _encrypted(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")):
        raise ValueError("use https://; plain http:// is accepted for the loopback interface only")
    return url


SecureUrl = Annotated[Url, AfterValidator(_encrypted)]


class OidcSettings(Settings):
    """Bearer tokens of an OpenID provider, beside those of `mbd serve token`."""

    issuer: str | None = None
    """issuer of the tokens (claim `iss`); null: none are accepted"""
    audience: str | None = None
    """audience of the tokens (claim `aud`)"""
    jwks: str | None = None
    """public keys of the provider: a JWKS file, or an https:// URL"""
    claim: str = "roles"
    """claim that holds the roles: a list, or a text with blanks between them"""

    @model_validator(mode="after")
    def _is_complete(self) -> "OidcSettings":
        if self.issuer and not (self.audience and self.jwks):
            raise ValueError("to accept tokens of an OpenID provider, set issuer, audience and jwks")
        if self.jwks and "://" in self.jwks:
            _encrypted(self.jwks)
        return self


class InferenceSettings(Settings):
    """Inference by the Open Inference Protocol: which models, how they are batched, and when they are taken out."""

    models: tuple[Name, ...] = ()
    """names of the models to serve, each by its current release in the log; none: no inference"""
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """pause between two looks at the log: a new release is loaded, and a revoked one taken out, within one"""
    log_seconds: Annotated[float, Field(gt=0, le=86400)] = 300.0
    """how long models are served while the store cannot be reached; then they are taken out"""
    batch_rows: Annotated[int, Field(ge=1, le=4096)] = 64
    """rows that are computed at once, of requests with the same modalities"""
    batch_milliseconds: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """how long a request waits for others to be computed with; 0: only while another batch is computed"""
    queue_rows: Count = 1024
    """rows that may wait; requests beyond are answered 503"""
    request_rows: Count = 1024
    """rows of one request"""
    request_bytes: Annotated[int, Field(ge=1024, le=2**31)] = 16 << 20
    """largest body of a request"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads that compute"""
    folder: str | None = None
    """folder in which a private one (mode 0700) holds the fetched models; null: the system's temporary folder"""


class ServingSettings(Settings):
    """The HTTP interface."""

    tokens: str = "build/keys/tokens.json"
    """file of the access tokens, which holds only their hashes (`mbd serve token`)"""
    oidc: OidcSettings = OidcSettings()
    public: tuple[Public, ...] = PUBLIC
    """what needs no token: store (certificates, models and the published part of the store) | metrics | inference"""
    weights: bool = False
    """whether the weights in the store can be fetched"""
    url: SecureUrl | None = None
    """address that clients use, where it is not the one that the server listens on (a proxy)"""
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """pause between two scans of the store"""
    rate_per_minute: Annotated[int, Field(ge=0, le=10**6)] = 600
    """requests that one client may make each minute, by token or else by address, inference apart; 0: any number"""
    body_bytes: Annotated[int, Field(ge=1024, le=2**31)] = 1 << 16
    """largest body of a request, inference apart"""
    connections: Annotated[int, Field(ge=1, le=60000)] = 4000
    """connections at a time; beyond, a new one takes the place of the one that has waited longest for a request"""
    address_connections: Annotated[int, Field(ge=1, le=60000)] = 3000
    """the same of one address; every client of a proxy has that of the proxy"""
    shutdown_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    """time that requests have to end when the server stops"""
    webhooks: tuple[SecureUrl, ...] = ()
    """URLs to which every change of a request's state is posted, signed with the secret in MBD_WEBHOOK_SECRET"""
    webhook_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """timeout of such a post"""
    inference: InferenceSettings = InferenceSettings()
