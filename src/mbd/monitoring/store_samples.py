"""Convert a snapshot of the store to samples, aggregated so that their number stays bounded.

A model has many certificates but few modalities. Evidence and the date of the next audit are those of the certificate
that was logged last for a modality and was not withdrawn.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from mbd.formats.guarantee import KINDS
from mbd.formats.leakage import LeakageRecord
from mbd.formats.request import OPEN, STATES
from mbd.history.facts import CertificateFacts, RegistrationFacts, StatementFacts
from mbd.history.history import History
from mbd.history.state import STATE_VERDICTS, reaudit_by, states_in
from mbd.monitoring import metrics
from mbd.monitoring.record_samples import budget_samples, leakage_samples, utility_samples
from mbd.monitoring.samples import Sample, Samples
from mbd.monitoring.store_scanner import InvalidEntry, RequestFacts, StoreSnapshot


@dataclass(frozen=True)
class EvidenceSamples:
    """Samples of the attacks and the utility in a certificate or a re-audit."""

    leakage: Mapping[str, Sequence[Sample]]
    """by modality"""
    utility: Sequence[Sample] = ()

    @classmethod
    def of(cls, record: LeakageRecord | None, model: str, modalities: tuple[str, ...]) -> "EvidenceSamples":
        """Return the samples in a leakage record."""
        if record is None:
            return cls(dict.fromkeys(modalities, ()))
        leakage = {modality: [*leakage_samples(record, model, modality)] for modality in modalities}
        return cls(leakage, [*utility_samples(record, model)])


MOST_NAMES = 1000
"""models, with modalities, that requests may name in metrics; those of further ones are counted under no name"""
ReadEvidence = Callable[[str, str, tuple[str, ...]], EvidenceSamples]
"""reads the evidence in a certificate or a re-audit, given its digest, model and modalities"""


class StoreSamples:
    """The samples of one snapshot, rendered once, so that a scrape is cheap however large the store is."""

    def __init__(self, found: StoreSnapshot, at: float, read: ReadEvidence, retrain_days: int | None = None) -> None:
        requests = _bounded(found.valid_requests)
        samples = Samples()
        _add_requests(samples, requests)
        _add_certificates(samples, found, at, read)
        _add_models(samples, found.history, retrain_days)
        _add_store(samples, found)
        self._pending = _pending(requests)
        self._text = samples.text()

    def text(self, at: float) -> str:
        """Return the samples in the text format of Prometheus; ages and deadlines are computed for the time `at`."""
        samples = Samples()
        for model, (received, due) in self._pending.items():
            samples.set(metrics.OLDEST_PENDING, at - received, model=model)
            samples.set(metrics.NEAREST_DEADLINE, due - at, model=model)
        return self._text + samples.text()


def _bounded(requests: Iterable[RequestFacts]) -> list[RequestFacts]:
    """Return the requests, without the names of models and modalities beyond the first ones.

    No key is needed to write a request, and each name is a time series.
    """
    names, bounded = set[tuple[str, tuple[str, ...]]](), []
    for request in sorted(requests, key=lambda each: each.received):
        name = request.model, request.modalities
        if name not in names and len(names) >= MOST_NAMES:
            bounded.append(replace(request, model="", modalities=()))
            continue
        names.add(name)
        bounded.append(request)
    return bounded


def _pending(requests: Iterable[RequestFacts]) -> dict[str, tuple[float, float]]:
    """Return for each model when its oldest open request was received, and the nearest deadline."""
    pending: dict[str, tuple[float, float]] = {}
    for request in requests:
        if request.state in OPEN:
            received, due = pending.get(request.model, (request.received, request.due))
            pending[request.model] = min(received, request.received), min(due, request.due)
    return pending


def _add_requests(samples: Samples, requests: list[RequestFacts]) -> None:
    counts = Counter((request.model, request.state) for request in requests)
    for model in {request.model for request in requests}:
        for state in STATES:
            samples.set(metrics.REQUESTS, counts[model, state], model=model, state=state)
    last: dict[tuple[str, str, str], float] = {}
    for request in requests:
        for modality in request.modalities:
            for state, at in request.events:
                key = request.model, modality, state
                last[key] = max(at, last.get(key, at))
    for (model, modality, reached), at in last.items():
        samples.set(metrics.REQUEST_EVENT, at, model=model, modality=modality, state=reached)


def _add_certificates(samples: Samples, found: StoreSnapshot, at: float, read: ReadEvidence) -> None:
    history, time = found.history, datetime.fromtimestamp(at, UTC)
    problem = found.log_problem or history.problem(time, found.max_age)
    certificates = list(history.certificates.values())
    states = states_in(history, time, problem)
    counts = Counter((certificate.model, certificate.kind, *states[certificate.digest]) for certificate in certificates)
    for model in {certificate.model for certificate in certificates}:
        for kind in KINDS:
            for state, verdict in STATE_VERDICTS.items():
                for each in dict.fromkeys((verdict, "not verified")):
                    count = counts[model, kind, state, each]
                    if count or each == verdict:
                        samples.set(metrics.CERTIFICATES, count, model=model, kind=kind, state=state, verdict=each)
    for certificate in certificates:
        if certificate.spent is not None and certificate.limit is not None:
            samples.update(budget_samples(certificate.spent, certificate.limit, certificate.model))
    current = [each for each in certificates if states[each.digest][0] in ("valid", "overdue", "unknown")]
    last = {(each.model, modality): each for each in current for modality in each.modalities}
    in_order = sorted(last.items(), key=lambda item: item[1].index)
    for (model, modality), certificate in in_order:
        due = reaudit_by(certificate, history.about(certificate.digest)).timestamp()
        samples.set(metrics.REAUDIT_BY, due, model=model, modality=modality, kind=certificate.kind)
        samples.update(_evidence(certificate, history.about(certificate.digest), read).leakage[modality])
    for certificate in {model: certificate for (model, _), certificate in in_order}.values():
        samples.update(_evidence(certificate, history.about(certificate.digest), read).utility)


def _evidence(certificate: CertificateFacts, about: Iterable[StatementFacts], read: ReadEvidence) -> EvidenceSamples:
    """Return the evidence of the last re-audit that passed, or of the certificate itself."""
    last = [certificate.digest, *(statement.digest for statement in about if statement.effect == "passed")][-1]
    return read(last, certificate.model, certificate.modalities)


def _add_models(samples: Samples, history: History, retrain_days: int | None) -> None:
    """Add what is current for each name; `retrain_days`: after how many days a registered model is trained again."""
    for model in map(history.model, history.models):
        current = model.current
        if current:
            kind = "registered" if isinstance(current, RegistrationFacts) else "certified"
            samples.set(metrics.MODEL_RELEASED, current.issued.timestamp(), model=model.name, release=kind)
        usable = current is not None and not history.blocking and model.problem(current) is None
        samples.set(metrics.MODEL_USABLE, int(usable), model=model.name)
        for modality in model.revoked:
            samples.set(metrics.MODEL_REVOKED, 1, model=model.name, modality=modality)
        for modality, reference in model.references.items() if model.registrations else ():
            samples.set(metrics.MODEL_REFERENCE, int(reference is not None), model=model.name, modality=modality)
        if retrain_days and model.registrations:
            due = model.registrations[-1].issued + timedelta(days=retrain_days)
            samples.set(metrics.RETRAIN_BY, due.timestamp(), model=model.name)


def _add_store(samples: Samples, found: StoreSnapshot) -> None:
    history = found.history
    invalid = {
        "certificate": len(history.findings) + found.unlogged,
        "request": sum(isinstance(fact, InvalidEntry) for fact in found.requests.values()),
        "log": int(found.log_problem is not None),
    }
    for what, count in invalid.items():
        samples.set(metrics.UNVERIFIED, count, what=what)
    samples.set(metrics.LOG_ENTRIES, history.size)
    samples.set(metrics.LOG_MISSING, len(history.blocking))
    if history.head:
        samples.set(metrics.LOG_TIME, history.head.time.timestamp())
    samples.set(metrics.TOMBSTONES, found.tombstones)
    samples.set(metrics.RESURRECTED, found.resurrected, place="store")
