"""What the console opens with: who is signed in, requests in numbers and by day, certificates by verdict, audits."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Request

from mbd.formats.access import Role
from mbd.formats.request import OPEN, State
from mbd.formats.verdict import Decision
from mbd.monitoring.store_scanner import RequestFacts
from mbd.serving.identity import Identity, readable, role
from mbd.serving.problems import View
from mbd.serving.routes import Serving, Words, problems
from mbd.serving.routes.log import CertificateView, StatementView, certificate_view
from mbd.serving.service import Service
from mbd.tensors import Array

router = APIRouter(tags=["overview"])
DAYS = 90
_SOON = timedelta(days=7)
_DAY_SECONDS = 86400
_LATEST = 5


class SessionView(View):
    """Whom the token of a request belongs to."""

    name: str
    roles: list[Role]
    persons: list[str]
    """models for which persons' requests are taken here"""


class DayView(View):
    """The requests of one day (UTC)."""

    day: date
    received: int
    certified: int
    open: int
    """at the end of the day"""
    overdue: int
    """of these, after their deadline"""


class RequestNumbers(View):
    """All requests in numbers."""

    states: dict[State, int]
    overdue: int
    due_soon: int
    """due within a week, and not overdue"""
    median_hours: float | None
    """from receipt to certificate, of those certified in these days"""
    days: list[DayView]
    """the last one is today"""


class AuditView(StatementView):
    """A later audit of a certified model."""

    model: str


class Overview(View):
    """What is open, what is in force, and what was audited last."""

    problem: Words | None
    """why the state of certificates cannot be known; null: it can"""
    certificates: dict[Decision, int]
    """how many have each verdict"""
    audits: list[AuditView]
    """the last ones, the newest first"""
    due: list[CertificateView]
    """those in force whose next audit is due first"""
    requests: RequestNumbers | None
    """null: the client lacks the role `read`"""


@router.get("/session", responses=problems(401, 403))
def show_session(service: Serving, identity: Annotated[Identity, role("read", "submit", "operate")]) -> SessionView:
    """Return whom the token belongs to, and what it allows."""
    persons = [service.params.certificate.model] if service.persons else []
    return SessionView(name=identity.name, roles=sorted(identity.roles), persons=persons)


@router.get("/overview", tags=["store"], responses=problems(401, 403), dependencies=[readable("store")])
def show_overview(request: Request, service: Serving) -> Overview:
    """Return everything in numbers, as of the last scan of the store."""
    identity: Identity | None = request.scope["state"].get("identity")
    may_read = identity is not None and "read" in identity.roles
    in_force = [row for row in service.certificates if row[1].state in ("valid", "overdue")]
    return Overview(
        problem=service.snapshot.problem,
        certificates=Counter(status.decision for _, status in service.certificates),
        audits=_audits(service),
        due=[certificate_view(*row) for row in sorted(in_force, key=lambda row: row[1].reaudit_by)[:_LATEST]],
        requests=count_requests(service.index.all(), service.clock()) if may_read else None,
    )


def count_requests(requests: Sequence[RequestFacts], at: datetime) -> RequestNumbers:
    """Return requests in numbers at a time, and for each of the days before it."""
    now, first = at.timestamp(), int(at.timestamp()) // _DAY_SECONDS - DAYS + 1
    ends = [np.inf if facts.state in OPEN else facts.events[-1][1] for facts in requests]
    times = zip((facts.received for facts in requests), (facts.due for facts in requests), ends, strict=True)
    received, due, end = np.array([*times], np.float64).reshape(-1, 3).T
    is_certified = np.array([facts.state == "certified" for facts in requests], bool)

    def by_day(at: Array, chosen: Array) -> Array:
        """Return how many of the chosen times were on each day; those of earlier days count for the first one."""
        days = np.maximum(at[chosen & (at <= now)] // _DAY_SECONDS - first, 0).astype(np.intp)
        return np.bincount(days, minlength=DAYS)

    everything, late = np.ones(len(due), bool), due < end
    columns = (
        by_day(received, received >= first * _DAY_SECONDS),
        by_day(end, is_certified & (end >= first * _DAY_SECONDS)),
        np.cumsum(by_day(received, everything) - by_day(end, everything)),
        np.cumsum(by_day(due, late) - by_day(end, late)),
    )
    hours = ((end - received) / 3600)[is_certified & (end >= first * _DAY_SECONDS)]
    is_open = np.isinf(end)
    return RequestNumbers(
        states=Counter(facts.state for facts in requests),
        overdue=int(np.sum(is_open & (due < now))),
        due_soon=int(np.sum(is_open & (due >= now) & (due < (at + _SOON).timestamp()))),
        median_hours=round(float(np.median(hours)), 2) if len(hours) else None,
        days=[
            DayView(day=_day(first + number), received=new, certified=done, open=left, overdue=overdue)
            for number, (new, done, left, overdue) in enumerate(np.stack(columns, axis=1).tolist())
        ],
    )


def _audits(service: Service) -> list[AuditView]:
    history = service.history
    audits = (facts for facts in reversed(history.statements) if facts.kind == "reaudit")
    known = ((facts, history.certificates.get(facts.about)) for facts in audits)
    certified = ((facts, certificate) for facts, certificate in known if certificate)
    return [
        AuditView(**StatementView.model_validate(facts).model_dump(), model=certificate.model)
        for (facts, certificate), _ in zip(certified, range(_LATEST), strict=False)
    ]


def _day(number: int) -> date:
    return datetime.fromtimestamp(number * _DAY_SECONDS, UTC).date()
