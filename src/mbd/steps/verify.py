"""Verifying a certificate wherever it is: a bundle's folder, or a store's URL.

    bundle/                                   a folder that `mbd certify` or `mbd publish --out` wrote
    s3://BUCKET/PREFIX                        the one certificate that is the latest there, by the log
    s3://…/certificates/SHA256                this certificate
    s3://…/latest/MODEL/MODALITY              the latest one for a model and a modality, by the log
    file://, https://                         likewise
    https://HOST/console/certificates/SHA256  the same as https://HOST/store/certificates/SHA256, as browsers show it

From a store everything is fetched that the certificate is about, and its log is read for whether the certificate is in
force. For a folder the caller names the store to ask, or asks none (`offline`). The store that a receipt in the folder
names is not asked: the sender of the folder could name an old copy of the store and so hide a revocation.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mbd.certificate.verification import VerificationInput, from_folder, from_store, verify_bundle
from mbd.errors import UsageError, VerificationError
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import latest_name
from mbd.steps.step import reads
from mbd.storage import open_existing
from mbd.storage.store import NotThereError, Store, StoreError
from mbd.trust.trust_file import Trust, find_trust, read_trust
from mbd.urls import without_credentials
from mbd.verifier.reader import NO_TRUST
from mbd.verifier.verdict import Check, Verdict, decide, failed, not_checkable

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.tree import ReaderParams

_PLACE = re.compile(
    r"(?P<store>.+?)(?:/certificates/(?P<digest>[0-9a-f]{64})(?:/certificate\.json)?|/latest/(?P<latest>[^/]+/[^/]+))?/?"
)
_PAGE = re.compile(
    r"(?P<site>https?://[^?#]+?)/(?:console/certificates/|certificates/(?=[0-9a-f]{64}/page))(?P<digest>[0-9a-f]{64})(?:/page)?/?(?:[?#].*)?"
)
"""what a browser shows for a certificate in the console of `mbd serve`, whose store is beside it"""
_CONSOLE = re.compile(r"https?://[^/?#]+/console(?:[/?#]|$)")
_LISTED = 5
STORE = "certificate in the store"


@reads("model", data="features")
def run(
    params: "Params | ReaderParams",
    source: str,
    *,
    model: Path | None = None,
    trust: Path | None = None,
    store: str | None = None,
    offline: bool = False,
    features: Path | None = None,
) -> Verdict:
    """Verify a certificate.

    Args:
        params: How to reach a store.
        source: A bundle's folder, or the URL of a store or of a certificate in it.
        model: Model folder to compare with the certificate.
        trust: Trust file; by default where :func:`~mbd.trust.trust_file.find_trust` finds one. Without any, the
            decision is at best `not verified`.
        store: URL of the store that says whether the certificate in a folder is in force.
        offline: Ask no store; the decision is at best `not verified`.
        features: FeatureSet folder: train again, and compare bits.

    Raises:
        UsageError: Neither a store nor `offline` was given for a folder, or both.
    """
    file = find_trust(trust)
    trusted = read_trust(file) if file else None
    with tempfile.TemporaryDirectory() as folder:
        try:
            if "://" in source:
                given = _in_store(params, source, model, Path(folder), trusted, named=store is not None or offline)
            else:
                given = _in_folder(params, Path(source), model, store, offline=offline)
            verdict = verify_bundle(given, trusted, max_age=params.certificate.checkpoint_age)
        except StoreError as error:
            verdict = _unread(source, trusted, not_checkable(STORE, error.problem, required=True))
        except VerificationError as error:
            verdict = _unread(source, trusted, failed(STORE, error.problem))
        else:
            if features is not None:
                from mbd.steps.reproduce import check_reproduction  # noqa: PLC0415 -- only this trains

                verdict = verdict.with_check(check_reproduction(params, given, verdict, features))
    return verdict.model_copy(update={"trust_file": str(file.absolute()) if file else None})


def _unread(source: str, trust: Trust | None, check: Check) -> Verdict:
    """Return the verdict on a certificate that could not be read from a store."""
    return Verdict(
        source=without_credentials(source),
        decision=decide([check]),
        certificate=None,
        claims={},
        model=None,
        store=without_credentials(source),
        trust=trust.digest if trust else None,
        checks=(check,),
    )


def _in_folder(
    params: "Params | ReaderParams", source: Path, model: Path | None, store: str | None, *, offline: bool
) -> VerificationInput:
    bundle = source.parent if source.name == CERTIFICATE else source
    if (store is not None) == offline:
        raise UsageError(
            "--store and --offline exclude each other" if offline else "a folder does not show whether it was revoked",
            value=str(source),
            hint="give --store URL, or --offline to leave open whether it is in force",
        )
    return from_folder(bundle, model, open_existing(store, params.store) if store is not None else None)


def _in_store(
    params: "Params | ReaderParams", source: str, model: Path | None, folder: Path, trust: Trust | None, *, named: bool
) -> VerificationInput:
    if page := _PAGE.fullmatch(source):
        source = f"{page['site']}/store/certificates/{page['digest']}"
    match = _PLACE.fullmatch(source)
    if match is None or _CONSOLE.match(source):
        hint = "give the address of a certificate's page, or of a store"
        raise UsageError("this is not the location of a certificate", value=without_credentials(source), hint=hint)
    if named:
        raise UsageError(
            "a URL names the store to ask: neither --store nor --offline can be given",
            value=without_credentials(source),
            hint="give the folder of a bundle instead of the URL, or leave the option out",
        )
    store = open_existing(match["store"], params.store, key="URL")
    digest = match["digest"] or _latest(store, trust, match["latest"])
    return from_store(store, digest, folder, model)


def _latest(store: Store, trust: Trust | None, named: str | None) -> str:
    """Return the certificate that was logged last for `MODEL/MODALITY`; without a name, for the only pair there is.

    Pointers of the store are not asked: somebody without a key could let them name the certificate of another model.
    """
    if trust is None:
        raise StoreError(f"which certificate is the latest cannot be known: {NO_TRUST}", file=store.url)
    from mbd.history.replay import read_history  # noqa: PLC0415 -- who names a folder reads no log

    try:
        certificates = read_history(store, trust).certificates.values()
    except VerificationError as error:
        raise StoreError(f"which certificate is the latest cannot be known: {error.problem}", file=store.url) from error
    pointers = {latest_name(c.model, modality): c.digest for c in certificates for modality in c.modalities}
    if not pointers:
        raise NotThereError(
            "no certificate has been published in this store", file=store.url, hint="check the URL; `mbd publish`"
        )
    if named is not None:
        name = latest_name(*map(unquote, named.split("/")))
        if name not in pointers:
            raise NotThereError(
                "the log has no certificate for this model and modality",
                file=store.url,
                value=name,
                hint=f"it has {', '.join(list(pointers)[:_LISTED])}",
            )
        return pointers[name]
    if len(set(pointers.values())) > 1:
        raise UsageError(
            f"the store holds {len(set(pointers.values()))} certificates",
            value=", ".join(list(pointers)[:_LISTED]),
            hint=f"say which one: {store.url}/{next(iter(pointers))}",
        )
    return next(iter(pointers.values()))
