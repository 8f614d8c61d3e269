"""Verifying a certificate wherever it is: a bundle's folder, or a store's URL.

    bundle/                                   a folder that `mbd certify` or `mbd publish --out` wrote
    s3://BUCKET/PREFIX                        the one certificate that is the latest there
    s3://…/certificates/SHA256                this certificate
    s3://…/latest/MODEL/MODALITY              the latest one for a model and a modality        (file:// likewise)

From a store everything is fetched that the certificate is about, and the log is read for whether it is still valid.
"""

import re
import tempfile
from pathlib import Path

from mbd.certificate.layout import LATEST, read_pointer
from mbd.certificate.trust import Trust, read_trust
from mbd.certificate.verdict import Check, Verdict, failed, not_checkable, passed
from mbd.certificate.verify import VerificationInput, from_folder, from_store, verify_bundle
from mbd.certificate.verify.checks import digest_name
from mbd.errors import MbdError, MissingExtraError, UsageError
from mbd.formats.model import ModelRecord
from mbd.formats.statement import CERTIFICATE, MODEL, WEIGHTS
from mbd.model.compatible import open_for, refuse_other_data
from mbd.params import Params, load_params
from mbd.storage import open_store
from mbd.storage.store import NotThereError, Store
from mbd.tensors import save_tensors
from mbd.urls import without_credentials

_PLACE = re.compile(
    r"(?P<store>.+?)(?:/certificates/(?P<digest>[0-9a-f]{64})(?:/certificate\.json)?|/latest/(?P<latest>[^/]+/[^/]+))?/?"
)
_SHOWN = 5
REPRODUCTION = "reproduction"


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
            verdict = verdict.with_check(_reproduction_check(given, verdict, features))
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


def _reproduction_check(given: VerificationInput, verdict: Verdict, features: Path) -> Check:
    """Train what `model.json` describes on the retained data in `features`, and compare the weights' digest."""
    if why := _impossible(verdict):
        return not_checkable(REPRODUCTION, why, required=True)
    record = ModelRecord.read(given.files[MODEL][0], "model record")
    try:
        data = open_for(record, features)
        refuse_other_data(record, data, features)
        data.verify()
    except MissingExtraError:
        raise
    except MbdError as error:
        return not_checkable(REPRODUCTION, f"the data does not serve: {error.problem}", required=True)
    try:
        from mbd.training.lattice import train_lattice  # noqa: PLC0415 -- scipy and others are an extra
    except ImportError as error:
        raise MissingExtraError("reproducing a deletion", "train", error.name or "threadpoolctl") from error
    params = load_params(None, ["model.backbone=lattice", f"training.seed={record.seed}"])
    lattice = type(params.model.lattice).model_validate(record.spec)
    params = params.model_copy(update={"model": params.model.model_copy(update={"lattice": lattice})})
    with tempfile.TemporaryDirectory() as folder:
        trained = train_lattice(data, params, work=Path(folder), progress=False)
        digest = save_tensors(Path(folder) / WEIGHTS, trained.tensors)
    wanted = verdict.claims["weights"]
    if digest != wanted:
        return failed(REPRODUCTION, f"training without it gives sha256 {digest}, certified is {wanted}", required=True)
    names = ", ".join(verdict.claims["modalities"])
    return passed(REPRODUCTION, f"training without {names} gives the certified weights, bit for bit", required=True)


def _impossible(verdict: Verdict) -> str | None:
    if verdict.claims.get("guarantee", {}).get("kind") != "exact":
        return "only an exact deletion can be reproduced"
    if verdict.claims["scope"] != "modalities":
        return "the certificate does not name the subjects, so training without them cannot be repeated"
    if verdict.check(digest_name(MODEL)).outcome != "passed":
        return "model.json is not the certified one"
    return None
