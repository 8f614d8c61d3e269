"""What took the place of a certified model, and whether that keeps what its certificate says was deleted.

A release replaces the ones of its name that came before it in the log. Along the chain from a certificate to the
newest release, each release that is not withdrawn has to keep its deletions: it takes no modality that the certificate
revokes, a registered one has not even seen it, and persons' recordings were left out. What was reinstated since
(`mbd models reinstate`) need not be kept.
"""

from bisect import bisect_right
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from mbd.formats.layout import CERTIFICATES
from mbd.history.facts import CertificateFacts, RegistrationFacts, Release
from mbd.verifier.verdict import Successor

if TYPE_CHECKING:
    from mbd.history.history import History, ModelHistory


def find_successor(history: "History", certificate: CertificateFacts) -> Successor | None:
    """Return the current release of the certificate's name, or else the newest one, if it is a later one."""
    model = history.model(certificate.model)
    first_later = bisect_right(model.released, certificate.index, key=_index)
    if first_later == len(model.released):
        return None
    newest = model.current if model.current and model.current.index > certificate.index else model.released[-1]
    return Successor(
        kind="registration" if isinstance(newest, RegistrationFacts) else "certificate",
        digest=newest.digest,
        address=f"{history.store.url}/{CERTIFICATES}/{newest.digest}",
        current=newest is model.current,
        releases=bisect_right(model.released, newest.index, key=_index) - first_later,
    )


def _index(release: Release) -> int:
    return release.index


def lost_deletions(
    model: "ModelHistory", reinstated: Callable[[CertificateFacts], set[str]], withdrawn: Container[str]
) -> dict[str, str]:
    """Return the certificates of a name with a deletion that no later release keeps, and which and how.

    The releases are read once, from the newest to the oldest, so that a long history costs no more than its length.

    Args:
        model: What the log says of the name.
        reinstated: Returns what of a certificate was reinstated.
        withdrawn: Digests of the releases that were revoked or refuted: what those take does not count.

    """
    lost: dict[str, str] = {}
    taken: dict[str, Release] = {}
    registered: list[RegistrationFacts] = []
    newest = model.released[-1:]
    for release in reversed(model.released):
        if release in newest:
            lost[release.digest] = f"the log has no later release of {model.name}"
        if isinstance(release, CertificateFacts):
            again = model.revoked.intersection(release.revoked) - reinstated(release)
            for modality in sorted(again.intersection(taken)):
                lost[release.digest] = f"a later release, {taken[modality].digest[:16]}, takes {modality} again"
            if release.scope == "subjects" and not reinstated(release).issuperset(release.modalities):
                for later in registered:
                    if later.weights != release.weights and release.digest not in later.left_out:
                        lost[release.digest] = f"a later release, {later.digest[:16]}, has seen the deleted recordings"
        if release.digest in withdrawn:
            continue
        if isinstance(release, RegistrationFacts):
            registered.append(release)
        taken |= dict.fromkeys(release.sees if isinstance(release, RegistrationFacts) else release.inputs, release)
    return lost
