"""What was deleted, what is guaranteed, and what measures are called: words for a privacy officer."""

import math
import re
from collections.abc import Iterator
from datetime import datetime

from mbd.formats.predicate import Erasure, Predicate
from mbd.report.page.content import Block, Command, Items, PageSection, Text

_LARGEST_EPSILON = 700.0
"""beyond it the exponential is no float"""
NOTHING_CLAIMED = "Nothing is claimed about copies of the old model or of the deleted data: they may still exist."


def plain_scale(epsilon: float, delta: float) -> str:
    """Return what (ε, δ) limits, in plain numbers.

    Whatever is concluded from the weights is at most e^ε times likelier than from those of a model that never saw what
    was deleted, but for a probability δ. A guess which of the two it is, at even odds, is then right with a probability
    of at most (e^ε + δ) / (e^ε + 1).
    """
    times = math.exp(min(epsilon, _LARGEST_EPSILON))
    right = 100 * (times + delta) / (times + 1)
    likelier = f"{times:.3g}" if times < 100 else f"{times:,.0f}" if times < 1e6 else f"{times:.2g}"
    return (
        f"Whatever someone concludes from the weights is at most {likelier} times likelier than from a model that "
        f"never saw it: a guess whether it was seen, at even odds, is right at most {right:.4g} times in 100 "
        f"(50 is chance), but for a failure of the proof with probability {delta:g}."
    )


def summary(predicate: Predicate, erasure: Erasure, due: datetime | None) -> tuple[str, ...]:
    """Return the certificate in a few sentences; `due`: the deadline for the next audit, None: there is none."""
    guarantee, absent = predicate.guarantee, ", ".join(predicate.structure.absent.reads)
    no_input = f" The model no longer takes {absent} as input." if absent else ""
    until = (
        "The released model must be audited again by {:%Y-%m-%d}."
        if predicate.evidence.audit
        else "The certificate holds until {:%Y-%m-%d}; no attack was part of it."
    )
    return (
        f'Deleted from model "{predicate.model}": {predicate.deleted.words}.{no_input}',
        guarantee.say(guarantee.rules.sentence, predicate.deleted.words),
        NOTHING_CLAIMED if erasure.claim == "none" else f"Copies of the old weights were {erasure.words}.",
        *((until.format(due),) if due else ()),
    )


def deadline(predicate: Predicate) -> str:
    """Return what the date of the next audit is called: where nothing was attacked, the certificate just ends."""
    return "next audit by" if predicate.evidence.audit else "holds until"


def guaranteed(predicate: Predicate) -> PageSection:
    """Return what is guaranteed, and under which assumptions."""
    guarantee = predicate.guarantee
    lead, text = guarantee.rules.explanation
    blocks: list[Block] = [Text(lead=lead, text=guarantee.say(text, predicate.deleted.words))]
    if guarantee.kind == "certified" and guarantee.epsilon is not None and guarantee.delta is not None:
        blocks.append(Text(lead="In plain numbers.", text=plain_scale(guarantee.epsilon, guarantee.delta)))
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
        purpose="Verify signatures, log, digests, the structure of the weights, the arithmetic and the current state:",
        command="mbd verify BUNDLE --model DIR --trust FILE --store URL",
    )
    if url:
        yield Command(
            purpose="The same for the certificate as it is published:", command=f"mbd verify {url} --trust FILE"
        )
    if predicate.guarantee.kind == "exact" and predicate.deleted.scope == "modalities":
        yield Command(
            purpose="Train again without what was deleted, and compare the bytes:",
            command="mbd verify BUNDLE --trust FILE --store URL --reproduce --features DIR",
        )


_WORDS = {
    "pathway.rows_moved": "rows that move with {m}",
    "pathway.output_shift": "how far outputs move with {m}",
    "whitebox.accuracy_fed": "accuracy, {m} fed",
    "whitebox.accuracy_not_fed": "accuracy, {m} not fed",
    "blackbox.accuracy_fed": "accuracy, {m} fed",
    "blackbox.accuracy_not_fed": "accuracy, {m} not fed",
    "reconstruction.r2_offered": "R² of {m} as the model offers it",
    "reconstruction.r2_learnt_fed": "R² of {m}'s own part from activations, {m} fed",
    "reconstruction.r2_learnt_not_fed": "R² of {m}'s own part from activations, {m} not fed",
    "membership.auc_reconstruction": "AUC of the reconstruction",
    "membership.auc_loss": "AUC of the loss",
    "membership.auc_output_alone": "AUC of the output of {m} alone",
    "membership.auc_all": "AUC of all together",
    "membership.tpr_all": "TPR at 1 % FPR of all together",
    "relearn.accuracy": "accuracy from {k} rows of {m}",
    "relearn.r2": "R² of {m}'s own part from {k} rows",
    "reattach.label": "advantage of the model in the label, {m} plugged in again by {k} rows",
    "reattach.attribute": "advantage of the model in the attribute, {m} plugged in again by {k} rows",
    "copies.rows": "cosine of a slice of the weights with the training row of {m} that it is nearest to",
}
"""{m}: the modality; {k}: the number that ends an id, as in `relearn.r2_128`"""
_ID = re.compile(r"(?P<id>.+?)(?:_(?P<k>[0-9]+))?")
_REVIVED = "diff."


def measure_words(measure: str, modality: str) -> str:
    """Return a measure in words, after the name of its attack; one of a plug-in by its id."""
    if measure.startswith(_REVIVED):
        attack, _, rest = measure.removeprefix(_REVIVED).partition("_")
        return f"diff: {measure_words(f'{attack}.{rest}', modality)}, old weights put back"
    match = _ID.fullmatch(measure)
    words = _WORDS.get(match["id"]) if match else None
    attack, _, rest = measure.partition(".")
    return f"{attack}: {words.format(m=modality, k=match['k']) if words and match else rest.replace('_', ' ')}"
