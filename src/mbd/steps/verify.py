"""Verifying a certificate wherever it is: a bundle's folder, or a store's URL.

    bundle/                                   a folder that `mbd certify` or `mbd publish --out` wrote
    s3://BUCKET/PREFIX                        the one certificate that is the latest there
    s3://…/certificates/SHA256                this certificate
    s3://…/latest/MODEL/MODALITY              the latest one for a model and a modality        (file:// likewise)

From a store everything is fetched that the certificate is about, and the store is asked whether it still stands.
"""

import re
import tempfile
from pathlib import Path

from mbd.certificate.layout import LATEST, read_pointer
from mbd.certificate.trust import Trust, read_trust
from mbd.certificate.verify import Verdict, VerificationInput, from_folder, from_store, verify_bundle
from mbd.errors import UsageError
from mbd.formats.statement import CERTIFICATE
from mbd.params import Params
from mbd.storage import open_store
from mbd.storage.store import NotThereError, Store
from mbd.urls import without_credentials

_PLACE = re.compile(
    r"(?P<store>.+?)(?:/certificates/(?P<digest>[0-9a-f]{64})(?:/certificate\.json)?|/latest/(?P<latest>[^/]+/[^/]+))?/?"
)
_SHOWN = 5


def run(
    params: Params, source: str, *, model: Path | None = None, trust: Path | None = None, features: Path | None = None
) -> Verdict:
    """Verify the certificate at `source`; with `features`, train it again and compare bits.

    Without `trust`, the trust file of the parameters counts, if there is one.
    """
    trusted = _trust(params, trust)
    with tempfile.TemporaryDirectory() as folder:
        given = _given(params, source, model, Path(folder))
        verdict = verify_bundle(given, trusted)
        if features is not None:
            from mbd.steps.reproduce import reproduction_check  # noqa: PLC0415 -- needs the training code

            verdict = verdict.with_check(reproduction_check(given, verdict, features))
    return verdict


def _trust(params: Params, trust: Path | None) -> Trust | None:
    file = trust or Path(params.certificate.trust)
    return read_trust(file) if trust is not None or file.exists() else None


def _given(params: Params, source: str, model: Path | None, folder: Path) -> VerificationInput:
    if "://" not in source:
        place = Path(source)
        return from_folder(place.parent if place.name == CERTIFICATE else place, model)
    match = _PLACE.fullmatch(source)
    if match is None:
        raise UsageError("this is no place of a certificate", value=without_credentials(source))
    store = open_store(match["store"], params.store)
    digest = match["digest"] or _latest(store, match["latest"])
    return from_store(store, digest, folder, model)


def _latest(store: Store, pointer: str | None) -> str:
    """Return the certificate that a pointer names; without a name, that of the only pointer there is."""
    if pointer is not None:
        name = f"{LATEST}/{pointer}"
        return read_pointer(store.read(name), name).certificate
    names = [stored.name for stored in store.list(f"{LATEST}/")]
    found = {name: read_pointer(store.read(name), name).certificate for name in names}
    if not found:
        raise NotThereError(
            "no certificate has been published in this store", file=store.url, hint="check the URL; `mbd publish`"
        )
    if len(set(found.values())) > 1:
        raise UsageError(
            f"the store holds {len(set(found.values()))} certificates",
            value=", ".join(list(found)[:_SHOWN]),
            hint=f"say which one: {store.url}/{next(iter(found))}",
        )
    return next(iter(found.values()))
