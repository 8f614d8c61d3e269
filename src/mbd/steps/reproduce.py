"""Reproducing an exact deletion: train what `model.json` describes without the modality, and compare bits."""

import tempfile
from pathlib import Path

from mbd.certificate.verification import VerificationInput
from mbd.errors import DataError, MbdError, MissingExtraError
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.model import ModelRecord
from mbd.model.compatible import open_for, refuse_other_data
from mbd.params import Params
from mbd.params.tree import ReaderParams
from mbd.registry import BACKBONES
from mbd.tensors import save_tensors
from mbd.training.trained import recorded_params
from mbd.verifier.checks import digest_name
from mbd.verifier.verdict import REPRODUCTION, Check, Verdict, failed, not_checkable, passed


def check_reproduction(
    params: Params | ReaderParams, given: VerificationInput, verdict: Verdict, features: Path
) -> Check:
    """Train what `model.json` describes on the retained data in `features`, and compare the weights' digest."""
    params = Params.model_validate(params.model_dump())  # those who only verify have not loaded all sections
    if why := _impossible(verdict):
        return not_checkable(REPRODUCTION, why, required=True)
    record = ModelRecord.read(given.files[MODEL][0], "model record")
    try:
        digest = _trained_again(record, params, features)
    except MissingExtraError:
        raise
    except MbdError as error:
        return not_checkable(REPRODUCTION, error.problem, required=True)
    wanted = verdict.claims["weights"]
    if digest != wanted:
        return failed(REPRODUCTION, f"training without it gives sha256 {digest}, certified is {wanted}")
    names = ", ".join(verdict.claims["modalities"])
    return passed(REPRODUCTION, f"training without {names} gives the certified weights, bit for bit")


def _trained_again(record: ModelRecord, params: Params, features: Path) -> str:
    """Return the SHA-256 of the weights that training gives.

    Raises:
        MbdError: The data is not what the model was made from, or what trains the model is not here.

    """
    if not record.training_is_recorded:
        raise DataError(f"with which settings the {record.backbone} model was trained is not part of its certificate")
    try:
        data = open_for(record, features)
        refuse_other_data(record, data, features)
        data.verify()
    except MbdError as error:
        raise DataError(f"the data cannot be used: {error.problem}") from error
    with tempfile.TemporaryDirectory() as folder:
        train = BACKBONES.get(record.backbone).train
        trained = train(data, recorded_params(record, params), work=Path(folder), progress=False)
        if trained.record.spec != record.spec:
            raise DataError("the source file of the factory is not the one that the model was trained with")
        return save_tensors(Path(folder) / WEIGHTS, trained.tensors)


def _impossible(verdict: Verdict) -> str | None:
    if verdict.claims.get("guarantee", {}).get("kind") != "exact":
        return "only an exact deletion can be reproduced"
    if verdict.claims["scope"] != "modalities":
        return "the certificate does not name the subjects, so training without them cannot be repeated"
    if verdict.check(digest_name(MODEL)).outcome != "passed":
        return "model.json is not the certified one"
    return None
