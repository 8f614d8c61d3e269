"""Reproducing an exact deletion: training without the modality must give the very bits that were certified."""

import tempfile
from pathlib import Path

from mbd.certificate.verdict import Check, Verdict, failed, not_checkable, passed
from mbd.certificate.verify.checks import digest_name
from mbd.certificate.verify.inputs import VerificationInput
from mbd.errors import MbdError, MissingExtraError
from mbd.formats.model import ModelRecord
from mbd.formats.statement import MODEL, WEIGHTS
from mbd.model.compatible import open_for, refuse_other_data
from mbd.params import load_params
from mbd.tensors import save_tensors

REPRODUCTION = "reproduction"


def reproduction_check(given: VerificationInput, verdict: Verdict, features: Path) -> Check:
    """Train what `model.json` describes on the retained data in `features`, and compare the weights' digest."""
    if why := _impossible(verdict):
        return not_checkable(REPRODUCTION, why, required=True)
    record = ModelRecord.read(given.files[MODEL][0], "model record")
    try:
        data = open_for(record, features)
        refuse_other_data(record, data, features)
        data.verify()
    except MissingExtraError:
        raise
    except MbdError as error:
        return not_checkable(REPRODUCTION, f"the data does not serve: {error.problem}", required=True)
    try:
        from mbd.training.lattice import train_lattice  # noqa: PLC0415 -- scipy and others are an extra
    except ImportError as error:
        raise MissingExtraError("reproducing a deletion", "train", error.name or "threadpoolctl") from error
    params = load_params(None, ["model.backbone=lattice", f"training.seed={record.seed}"])
    lattice = type(params.model.lattice).model_validate(record.spec)
    params = params.model_copy(update={"model": params.model.model_copy(update={"lattice": lattice})})
    with tempfile.TemporaryDirectory() as folder:
        trained = train_lattice(data, params, work=Path(folder), progress=False)
        digest = save_tensors(Path(folder) / WEIGHTS, trained.tensors)
    wanted = verdict.claims["weights"]
    if digest != wanted:
        return failed(REPRODUCTION, f"training without it gives sha256 {digest}, certified is {wanted}", required=True)
    names = ", ".join(verdict.claims["modalities"])
    return passed(REPRODUCTION, f"training without {names} gives the certified weights, bit for bit", required=True)


def _impossible(verdict: Verdict) -> str | None:
    if verdict.claims.get("guarantee", {}).get("kind") != "exact":
        return "only an exact deletion can be reproduced"
    if verdict.claims["scope"] != "modalities":
        return "whose recordings were forgotten is not told, so nobody else can train without them"
    if verdict.check(digest_name(MODEL)).outcome != "passed":
        return "model.json is not the certified one"
    return None
