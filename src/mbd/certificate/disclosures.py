"""What a certificate itself tells that its guarantee does not cover, in words.

A guarantee is about the released weights. The certificate is a release, too, and says so where it tells more.
"""

from mbd.formats.deletion import DeletionRecord


def disclosures(deletion: DeletionRecord) -> tuple[str, ...]:
    """Return what has to be said about a certificate of this deletion."""
    names = ", ".join(deletion.request.modalities)
    subjects = (
        f"How many subjects were forgotten is told. model.json lists digests of the files that the model was trained "
        f"from, {names} among them as it was before the deletion: they tell whoever has such a file that it is the one."
    )
    attacks = (
        f"The figures of the attacks were computed with recordings of {names} that were still there at the time, and "
        "those marked before with the weights before the deletion. They are averages over rows, and no guarantee "
        "covers them."
    )
    told = (
        "Digests of the old weights and of the data are told: they tell whoever has these files that they are the ones."
    )
    hidden = (
        "Digests of the old weights and of the data as a whole are not told, only salted commitments to them, which "
        "say nothing without the salts. The issuer keeps these."
    )
    return (
        subjects if deletion.request.subjects else attacks,
        told if deletion.guarantee.kind == "empirical" else hidden,
    )
