"""What is revoked for the model `certificate.model`, as its log says: training and deletion leave it out.

It is asked where models are registered under the name. Modalities follow from the log alone. Persons are named in it by
commitments; who they are follows from the openings of these in `certificate.private`, and without them nothing is
trained: recordings of a person would come back unnoticed.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.history.facts import CertificateFacts
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.log.tiles import PREFIX
from mbd.params import Params
from mbd.shredding.private_folder import private_folder
from mbd.storage import open_store
from mbd.trust.commitments import read_values
from mbd.trust.trust_file import read_trust

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Revoked:
    """What no model of a name may be trained on."""

    name: str
    modalities: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    """of persons' deletions, in ascending order"""
    persons: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    """whose recordings of a modality are left out"""

    def in_data(self, features: Path) -> tuple[str, ...]:
        """Return the revoked modalities that a FeatureSet has; say so."""
        revoked = tuple(m for m in FeatureSet.open(features).modalities if m in self.modalities)
        if revoked:
            _LOG.warning("%s is revoked for %s: training leaves it out", ", ".join(revoked), self.name)
        return revoked

    @contextmanager
    def left_out(self, features: Path, without: tuple[str, ...] = ()) -> Iterator[Path]:
        """Within: a FeatureSet without the recordings of these persons; of modalities in `without` no file is read."""
        if not self.persons:
            yield features
            return
        with private_folder(gettempdir()) as folder:
            count = leave_out(features, folder, self.persons, without)
            if count:
                _LOG.warning("%d recordings of persons who revoked them for %s are left out", count, self.name)
            yield folder


def read_revoked(params: Params) -> Revoked:
    """Return what is revoked for the model `certificate.model`; nothing if no model of the name is registered.

    Raises:
        VerificationError: The log cannot be read completely, or is not the one that was read before.
        DataError: It is not known whose recordings were deleted.
    """
    history = _logged(params)
    model = history.model(params.certificate.model) if history else None
    if history is None or model is None or not model.registrations:
        return Revoked(params.certificate.model)
    return _of(params, model.persons, tuple(sorted(model.revoked)))


def _logged(params: Params) -> History | None:
    """Return what the log says; None: there are neither keys nor a log yet."""
    store, trust = open_store(params.store.url, params.store), Path(params.certificate.trust)
    if not trust.exists() and next(iter(store.list(PREFIX)), None) is None:
        return None
    return read_log(params, params.store.url)


def read_log(params: Params, url: str) -> History:
    """Return what the log of the store at `url` says, by the trust file of the parameters.

    Raises:
        VerificationError: The log cannot be read completely, or is not the one that was read before.
    """
    trust = read_trust(Path(params.certificate.trust))
    return read_history(open_store(url, params.store), trust).require()


def respected_by_current(history: History, params: Params) -> Revoked:
    """Return the persons without whose recordings the current release of `certificate.model` was made."""
    return _of(params, history.require().model(params.certificate.model).respected)


def persons_of(params: Params, certificates: Sequence[str]) -> Revoked:
    """Return the persons that certificates in the log, by their digests, are about.

    Raises:
        VerificationError: The log cannot be read completely.
        DataError: It is not known whose recordings were deleted.
    """
    if not certificates:
        return Revoked(params.certificate.model)
    history = read_log(params, params.store.url)
    if unknown := [digest for digest in certificates if digest not in history.certificates]:
        raise DataError(
            "the log does not have the certificates by which recordings of persons are left out",
            file=params.store.url,
            key="store.url",
            value=", ".join(unknown),
            hint="name the store in which they are published",
        )
    return _of(params, [history.certificates[digest] for digest in certificates])


def revocable(params: Params, features: Path) -> tuple[str, ...]:
    """Return the modalities of a FeatureSet that a reference is trained for: `requests.revocable`, or all.

    What is revoked for the name is left out, and so is the last modality: without it no model is left.

    Raises:
        UsageError: The data has no such modality.
    """
    data, chosen = FeatureSet.open(features).modalities, params.requests.revocable
    if unknown := [m for m in chosen or () if m not in data]:
        raise UsageError(
            f"the data has no modality {', '.join(unknown)}",
            key="requests.revocable",
            value=", ".join(chosen or ()),
            hint=f"it has {', '.join(data)}",
        )
    history = _logged(params)
    model = history.model(params.certificate.model) if history else None
    left = [m for m in data if not (model and model.registrations and m in model.revoked)]
    return tuple(m for m in left if chosen is None or m in chosen) if len(left) > 1 else ()


def _of(params: Params, certificates: Sequence[CertificateFacts], modalities: tuple[str, ...] = ()) -> Revoked:
    persons: dict[str, frozenset[str]] = {}
    for certificate in certificates:
        subjects = frozenset(open_subjects(certificate.subjects, certificate.digest, Path(params.certificate.private)))
        for modality in certificate.modalities:
            persons[modality] = persons.get(modality, frozenset()) | subjects
    digests = tuple(sorted(certificate.digest for certificate in certificates))
    return Revoked(params.certificate.model, modalities, digests, persons)


def open_subjects(commitments: Iterable[str], digest: str, private: Path) -> list[str]:
    """Return the persons that a certificate or statement of a digest commits to, by the openings in `private`.

    Raises:
        DataError: The openings are missing.
    """
    values = read_values(private, digest)
    try:
        return [values[commitment] for commitment in commitments]
    except KeyError as error:
        raise DataError(
            "a certificate is about persons, and it is not known whose recordings were deleted: the openings of "
            "its commitments are missing",
            file=private / f"{digest}.json",
            key="certificate.private",
            hint="restore the file from its backup; without it nothing is trained under this name",
        ) from error
