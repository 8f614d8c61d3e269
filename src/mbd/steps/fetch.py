"""Step `fetch`: the model that a published certificate is about, out of the store, every file checked by its digest.

    model.safetensors, model.json, indices.safetensors     as they were published
    published.json                                         by which certificate, and what was deleted

The model of a certificate that was revoked, superseded or refuted is not fetched.
"""

from pathlib import Path
from typing import Literal

from mbd.errors import DataError, UsageError
from mbd.files import write_file
from mbd.formats.deletion import INDICES
from mbd.formats.layout import object_name
from mbd.formats.statement import MODEL, WEIGHTS
from mbd.history.replay import read_history
from mbd.history.state import entry
from mbd.params import Params
from mbd.records import Digest, Record, now
from mbd.steps.step import step_run
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust, read_trust

NAME = "fetch"
PUBLISHED = "published.json"


class Published(Record):
    """What `published.json` says."""

    format: Literal["urn:missing-by-design:published-model:v1"] = "urn:missing-by-design:published-model:v1"
    certificate: Digest
    model: str
    """the name under which it was published"""
    modalities: tuple[str, ...]
    """what this certificate says was deleted"""
    revoked: tuple[str, ...]
    """all that was ever revoked: a reference is trained without these"""


def run(params: Params, store: str, out: Path, *, modality: str = "", certificate: str = "") -> Published:
    """Fetch the model of a certificate, or of the latest one for a modality of `certificate.model`, to `out`."""
    opened, trust = open_store(store, params.store), read_trust(Path(params.certificate.trust))
    digest = certificate or _latest(opened, trust, params.certificate.model, modality)
    found = entry(opened, digest, trust, now(), max_age=params.certificate.checkpoint_age)
    predicate, digests = found.statement.predicate, found.statement.digests
    if found.status.state not in ("valid", "overdue"):
        raise UsageError(
            f"this certificate is no longer valid: {found.status.reason}",
            value=found.digest,
            hint="`mbd certificate list` shows those that are valid",
        )
    published = Published(
        certificate=found.digest,
        model=predicate.model,
        modalities=predicate.deleted.modalities,
        revoked=predicate.deleted.revoked,
    )
    with step_run(NAME, out, {"store": params.store}) as step:
        step.inputs["certificate"] = {"path": f"{opened.url}/certificates/{found.digest}", "digest": found.digest}
        for name in (WEIGHTS, MODEL, INDICES):
            opened.fetch(object_name(digests[name]), step.folder / name, sha256=digests[name])
        write_file(step.folder / PUBLISHED, published.to_json())
        step.look_at = PUBLISHED
    return published


def _latest(store: Store, trust: Trust, model: str, modality: str) -> str:
    if not modality:
        raise UsageError("neither a certificate nor a modality was named", hint="give CERTIFICATE or --modality")
    latest = read_history(store, trust).model(model).latest(modality)
    if latest is None:
        raise DataError(
            f"no certificate was published for {modality} of {model}",
            file=store.url,
            hint="`mbd certificate list` shows what there is; certificate.model names the model",
        )
    return latest.digest
