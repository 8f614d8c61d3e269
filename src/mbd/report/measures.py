"""What measures of attacks are called in reports. Records name them by id (:mod:`mbd.formats.leakage`)."""

import re

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
