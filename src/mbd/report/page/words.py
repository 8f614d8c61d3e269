"""What was deleted, what is guaranteed and what is not, in words for a privacy officer."""

from collections.abc import Iterator
from datetime import datetime

from mbd.formats.predicate import Erasure, Predicate
from mbd.report.page.content import Block, Command, Items, PageSection, Text

_KINDS = {
    "empirical": (
        "Empirical: nothing is proven.",
        "The attacks below were run on the released model and found no more than on a model that never saw what was "
        "deleted.",
    ),
    "certified": (
        "Certified.",
        "Under the assumptions below, the released weights are (ε, δ)-indistinguishable, with ε = {epsilon:g} and "
        "δ = {delta:g}, from those of a model that never saw what was deleted.",
    ),
    "exact": (
        "Exact.",
        "Under the assumptions below, the released weights are byte for byte those of a model that never saw what was "
        "deleted (ε = 0).",
    ),
}
_IN_SHORT = {
    "empirical": "This rests on tests, not on a proof: within the tolerance stated below, attacks on the released "
    "model found no more of it than the same attacks on a model that never saw it.",
    "certified": "Under the assumptions below, it is proven that the released weights reveal only a limited amount "
    "about it; the limit is ε = {epsilon:g}, δ = {delta:g}, and smaller is stricter.",
    "exact": "Under the assumptions below, the released weights are byte for byte those of a model that never saw it.",
}
_COPIES = {
    "none": "Nothing is claimed about copies of the old model or of the deleted data: they may still exist.",
    "partial": "Copies of the old weights were searched for and removed, but some remain, or may remain.",
    "complete": "Copies of the old weights were searched for and removed; none remains in the places searched.",
}


def forgotten(predicate: Predicate) -> str:
    """Return what was deleted, as it is named in a sentence."""
    names, count = ", ".join(predicate.deleted.modalities), len(predicate.deleted.subjects)
    return f"the recordings of {count} subject{'s' * (count > 1)} in {names}" if count else names


def summary(predicate: Predicate, erasure: Erasure, due: datetime) -> tuple[str, ...]:
    """Return the certificate in four sentences; `due`: the deadline for the next audit."""
    guarantee, absent = predicate.guarantee, ", ".join(predicate.structure.absent.reads)
    no_input = f" The model no longer takes {absent} as input." if absent else ""
    return (
        f'Deleted from model "{predicate.model}": {forgotten(predicate)}.{no_input}',
        _IN_SHORT[guarantee.kind].format(epsilon=guarantee.epsilon, delta=guarantee.delta),
        _COPIES[erasure.claim],
        f"The released model must be audited again by {due:%Y-%m-%d}.",
    )


def guaranteed(predicate: Predicate) -> PageSection:
    """Return what is guaranteed, and under which assumptions."""
    guarantee = predicate.guarantee
    lead, text = _KINDS[guarantee.kind]
    blocks: list[Block] = [Text(lead=lead, text=text.format(epsilon=guarantee.epsilon, delta=guarantee.delta))]
    if guarantee.assumptions:
        blocks += [Text(text="This holds under these assumptions:"), Items(items=guarantee.assumptions)]
    return PageSection(id="guarantee", title="What is guaranteed", blocks=tuple(blocks))


def limits(predicate: Predicate) -> PageSection:
    """Return what is not guaranteed."""
    return PageSection(
        id="limits",
        title="What is not guaranteed, and what the certificate discloses",
        blocks=(Items(items=(predicate.erasure.note, *predicate.disclosures)),),
    )


def commands(predicate: Predicate, url: str | None = None) -> Iterator[Block]:
    """Yield how to verify the certificate from a terminal; `url`: where it is published, if known."""
    yield Command(
        purpose="Verify signatures, log inclusion, digests, the structure of the weights and the arithmetic, offline:",
        command="mbd verify BUNDLE --model DIR --trust FILE",
    )
    if url:
        yield Command(
            purpose="The same from the store, including whether the certificate was revoked or replaced:",
            command=f"mbd verify {url} --trust FILE",
        )
    if predicate.guarantee.kind == "exact" and predicate.deleted.scope == "modalities":
        yield Command(
            purpose="Train again without what was deleted, and compare the bytes:",
            command="mbd verify BUNDLE --trust FILE --reproduce --features DIR",
        )
