"""What was deleted, what is guaranteed and what is not, in words that a privacy officer understands."""

from collections.abc import Iterator
from datetime import datetime

from mbd.formats.predicate import Erasure, Predicate
from mbd.report.page.content import Block, Command, Items, PageSection, Text

_KINDS = {
    "empirical": (
        "Empirical: nothing is proven.",
        "The attacks below were tried on the released model and found no more than on a model that never saw what was "
        "deleted.",
    ),
    "certified": (
        "Certified.",
        "Under the assumptions below, the released weights are indistinguishable within ε = {epsilon:g}, δ = {delta:g} "
        "from what they would be without what was deleted.",
    ),
    "exact": (
        "Exact.",
        "Under the assumptions below, the released weights are, bit for bit, those of a model that never saw what was "
        "deleted (ε = 0).",
    ),
}
_IN_SHORT = {
    "empirical": "This rests on tests and not on a proof: attacks on the released model found no more of it, within "
    "the tolerance told below, than the same attacks on a model that never saw it.",
    "certified": "It is proven, under the assumptions below, that the released weights tell only a limited amount "
    "about it; the limit is ε = {epsilon:g}, δ = {delta:g}, and smaller is stricter.",
    "exact": "Under the assumptions below, the released weights are, bit for bit, those of a model that never saw it.",
}
_COPIES = {
    "none": "Nothing is claimed about copies of the old model or of the deleted data: they may still exist.",
    "partial": "Copies of the old weights were searched for and removed, but some are left, or it is not known.",
    "complete": "Copies of the old weights were searched for and removed, and none was left in the places searched.",
}


def forgotten(predicate: Predicate) -> str:
    """Return what was forgotten."""
    names, count = ", ".join(predicate.deleted.modalities), len(predicate.deleted.subjects)
    return f"the recordings of {count} subject{'s' * (count > 1)} in {names}" if count else names


def summary(predicate: Predicate, erasure: Erasure, due: datetime) -> tuple[str, ...]:
    """Return the whole certificate in four sentences; `due`: by when the model is to be attacked again."""
    guarantee, gone = predicate.guarantee, ", ".join(predicate.structure.absent.reads)
    input_gone = f" It takes no {gone} any more." if gone else ""
    return (
        f"The model {predicate.model} has been made to forget {forgotten(predicate)}.{input_gone}",
        _IN_SHORT[guarantee.kind].format(epsilon=guarantee.epsilon, delta=guarantee.delta),
        _COPIES[erasure.claim],
        f"The released model is to be attacked again by {due:%Y-%m-%d}.",
    )


def guaranteed(predicate: Predicate) -> PageSection:
    """Return what is guaranteed, and what has to be so for it to hold."""
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
        title="What this certificate does not say, and what it tells",
        blocks=(Items(items=(predicate.erasure.note, *predicate.disclosures)),),
    )


def commands(predicate: Predicate, place: str | None = None) -> Iterator[Block]:
    """Yield how to check the certificate from a terminal; `place`: its URL, if it is known."""
    yield Command(
        purpose="Check signatures, log, every digest, the structure of the weights and the arithmetic, offline:",
        command="mbd verify BUNDLE --model DIR --trust FILE",
    )
    if place:
        yield Command(
            purpose="The same from the store, which also knows whether the certificate still stands:",
            command=f"mbd verify {place} --trust FILE",
        )
    if predicate.guarantee.kind == "exact" and predicate.deleted.scope == "modalities":
        yield Command(
            purpose="Train again without what was deleted, and compare the bits:",
            command="mbd verify BUNDLE --trust FILE --reproduce --features DIR",
        )
