"""Step `request submit`: a request for whole modalities, or one for each person, is entered in the store.

What the log knows of the model is asked first: an unknown model, modality or person is an error here, and not when the
request is carried out. A person's id is kept encrypted under the lineage key, and the request names their pseudonym.
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.request import DeletionRequest
from mbd.history.history import History
from mbd.history.lineage import keep_subject
from mbd.params import Params
from mbd.production.models import known_model
from mbd.production.releases import find_base
from mbd.production.request_store import RequestStore, refuse_several
from mbd.shredding.private_folder import private_folder
from mbd.steps import features
from mbd.steps.revoked import read_log
from mbd.steps.step import reads
from mbd.trust.commitments import read_lineage_key

_LOG = logging.getLogger(__name__)


@reads(data="features_folder")
def submit(
    params: Params,
    url: str,
    model: str,
    modalities: Sequence[str],
    subjects: Sequence[str] = (),
    *,
    features_folder: Path | None = None,
    nothing_held: bool = False,
    reason: str = "",
    requester: str = "",
    token: str | None = None,
) -> list[DeletionRequest]:
    """Submit a request for whole modalities of a model name, or one for each person; return them.

    Persons, by their ids, are groups of a FeatureSet: the given one, or that of the current release, which is brought
    here. With `nothing_held` a person may be unknown to it: the request then ends with a statement of that. Neither
    `reason` nor `requester`, a case number, is personal data. The same `token` again submits nothing new.

    Raises:
        UsageError: There is no such model, modality or person.
    """
    requests = RequestStore.open(params, url)
    history = _known_history(params, url, required=bool(subjects))
    if history is not None:
        _refuse_unknown(history, model, modalities)
    entered = partial(requests.submit, model, modalities, due_days=params.requests.due_days)
    if not subjects or history is None:
        return [entered(reason=reason, requester=requester, token=token)]
    refuse_several(modalities)
    if not nothing_held:
        _refuse_unknown_persons(params.having({"certificate.model": model}), url, subjects, features_folder)
    key = read_lineage_key(params.certificate)
    pseudonyms = {keep_subject(requests.store, subject, key) for subject in subjects}
    several = f"{token}/{{}}".format if token and len(pseudonyms) > 1 else lambda _: token
    return [
        entered(subject=pseudonym, reason=reason, requester=requester, token=several(pseudonym))
        for pseudonym in sorted(pseudonyms)
    ]


def _known_history(params: Params, url: str, *, required: bool) -> History | None:
    """Return what the log says; None where nothing was logged yet, unless it is required."""
    if not required and not Path(params.certificate.trust).is_file():
        return None
    history = read_log(params, url)
    return history if history.models or required else None


def _refuse_unknown(history: History, model: str, modalities: Sequence[str]) -> None:
    known = known_model(history, model)
    taken = {m for release in known.releases for m in release.inputs} | known.revoked
    for modality in modalities:
        if modality not in taken:
            raise UsageError(
                f"{model} has no modality {modality}",
                key="--modality",
                value=modality,
                hint=f"it takes {', '.join(known.current.inputs) if known.current else 'nothing'}",
            )


def _refuse_unknown_persons(params: Params, url: str, subjects: Sequence[str], folder: Path | None) -> None:
    with private_folder(gettempdir()) as work:
        if folder is None:
            folder = work / "features"
            features.bring(params, folder, find_base(params, url, None).revision, _LOG.warning)
        data = FeatureSet.open(folder)
        persons = set(np.concatenate([data.split(name).groups for name in data.manifest.splits]).tolist())
        unknown = [subject for subject in subjects if subject not in persons]
    if unknown:
        raise UsageError(
            f"{len(unknown)} of {len(subjects)} persons are not in the data of this model",
            key="--subject",
            hint="persons are the groups of the FeatureSet; if nothing is held of them, submit with --nothing-held "
            "to get a signed statement of that",
        )
