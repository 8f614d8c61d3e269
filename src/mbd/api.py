"""The functions of the public API. `import mbd` stays instant: each loads what it needs when it is called."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from mbd.errors import MbdError
from mbd.params import Params, load_params
from mbd.steps.step import read_folder, step_context

if TYPE_CHECKING:
    from mbd.certificate.guard import Admission
    from mbd.certificate.verification import Verdict
    from mbd.formats.leakage import LeakageRecord
    from mbd.model.predictor import Model
    from mbd.steps.certify import CertifyResult
    from mbd.steps.delete import DeletionResult
    from mbd.steps.evaluate import EvaluationResult
    from mbd.steps.features import FeaturesSummary
    from mbd.steps.import_model import ImportResult
    from mbd.steps.publish import PublishResult
    from mbd.steps.train import TrainingResult
    from mbd.trust.trust_file import Trust

Folder = Path | str
Names = str | Sequence[str]
Parameters = Params | Path | str | Mapping[str, object] | None


def make_features(out: Folder, *, params: Parameters = None) -> "FeaturesSummary":
    """Convert feature data to a FeatureSet, and validate it.

    Args:
        out: folder to write the FeatureSet to.
        params: parameters; `features.source` names the data (default: synthetic).

    Returns:
        Rows, modalities and labels of the FeatureSet; `to_text()` prints them.

    Raises:
        DataError: the data are not valid.
    """
    from mbd.steps import features

    with _running("features", params) as values:
        return features.run(values, Path(out))


def train(features: Folder, out: Folder, *, without: Names = (), params: Parameters = None) -> "TrainingResult | None":
    """Train a model.

    Args:
        features: a FeatureSet folder.
        out: folder to write the model to.
        without: modality, or modalities, that training must not see; this makes a reference model.
        params: parameters; `model.backbone` chooses the model.

    Returns:
        The result; None in all processes of torchrun but the first.
    """
    from mbd.steps import train as step

    with _running("train", params) as values:
        return step.run(values, Path(features), Path(out), _names(without))


def import_model(
    weights: Folder,
    features: Folder,
    trained_on: Names,
    out: Folder,
    *,
    adapter: Folder | None = None,
    params: Parameters = None,
) -> "ImportResult":
    """Make a model folder of weights that were trained elsewhere.

    Args:
        weights: a `state_dict`: safetensors, what `torch.save` wrote, a checkpoint of Lightning, or a folder of Hugging
            Face.
        features: the FeatureSet folder that the weights were trained on.
        trained_on: the modalities that training saw.
        out: folder to write the model to.
        adapter: folder of a LoRA adapter, which is merged into the weights.
        params: parameters; `model.backbone` names the factory of the module, PACKAGE.MODULE:FACTORY.

    Returns:
        The result.

    Raises:
        DataError: the file holds more than tensors, or the weights do not fit the module.
    """
    from mbd.steps import import_model as step

    with _running("import", params) as values:
        merged = None if adapter is None else Path(adapter)
        return step.run(values, Path(weights), Path(features), _names(trained_on), Path(out), adapter=merged)


def load(folder: Folder, *, params: Parameters = None) -> "Model":
    """Load a trained model.

    Args:
        folder: a model folder, as :func:`train` or :func:`delete` wrote it.
        params: parameters; `purge` and `shredding` say where tombstones and data keys are.

    Returns:
        The model; its `predict` takes any subset of its modalities.

    Raises:
        DataError: the folder has no valid model, or the model was purged.
    """
    from mbd.model import predictor

    with _running("load", params):
        return predictor.load(read_folder(Path(folder)))


def evaluate(
    features: Folder,
    models: Folder | Sequence[Folder],
    out: Folder,
    *,
    against: Folder | None = None,
    params: Parameters = None,
) -> "EvaluationResult":
    """Evaluate models with modalities missing, clean and corrupted.

    Args:
        features: a FeatureSet folder.
        models: a model folder, or several, one for each method.
        out: folder to write metrics, tables and figures to.
        against: the model that the others are tested against.
        params: parameters.

    Returns:
        All metrics, as in `metrics.json`, and their summary as text.
    """
    from mbd.steps import evaluate as step

    folders = [*map(Path, [models] if isinstance(models, Folder) else models)]
    with _running("evaluate", params) as values:
        return step.run(values, Path(features), folders, Path(out), against=_path(against))


def delete(
    features: Folder,
    model: Folder,
    modalities: Names,
    out: Folder,
    *,
    subjects: Names = (),
    reference: Folder | None = None,
    params: Parameters = None,
) -> "DeletionResult | None":
    """Delete modalities from a model.

    Args:
        features: the FeatureSet folder that the model was trained on.
        model: the model folder.
        modalities: modality, or modalities, to delete.
        out: folder to write the new model and its deletion record to.
        subjects: delete the modalities of these subjects only (method `exact`).
        reference: a model trained without the modalities, to measure the distance to it.
        params: parameters; `deletion.method` chooses surgery, certified or exact.

    Returns:
        The deletion record with its guarantee; None in all processes of torchrun but the first.
    """
    from mbd.steps import delete as step

    with _running("delete", params) as values:
        return step.run(
            values, Path(features), Path(model), _names(modalities), _names(subjects), Path(out), _path(reference)
        )


def attack(
    features: Folder,
    after: Folder,
    reference: Folder,
    modalities: Names,
    out: Folder,
    *,
    before: Folder | None = None,
    params: Parameters = None,
) -> "LeakageRecord":
    """Attack a model after a deletion.

    Args:
        features: the FeatureSet folder that the models were trained on.
        after: the model after the deletion.
        reference: a model trained without the modalities.
        modalities: the deleted modality or modalities.
        out: folder to write measurements, report and figures to.
        before: the model before the deletion.
        params: parameters.

    Returns:
        All measurements and the gate's decision.

    Raises:
        GateRefusedError: the gate refused the model; `out` is written all the same.
    """
    from mbd.steps import attack as step

    models = (_path(before), Path(after), Path(reference))
    with _running("attack", params) as values:
        return step.run(values, Path(features), *models, _names(modalities), Path(out))


def make_keys(folder: Folder, name: str = "signer") -> "Trust":
    """Create a key that signs certificates, a key for the log, and the trust file.

    Args:
        folder: folder for the keys; by default certificates are signed with keys in build/keys.
        name: holder of the key.

    Returns:
        The trusted keys.

    Raises:
        UsageError: there are keys in the folder.
    """
    from mbd.trust.keys import make_keys as create

    return create(Path(folder), name)


def certify(
    deletion: Folder,
    leakage: Folder | None,
    evaluation: Folder,
    out: Folder,
    *,
    params: Parameters = None,
) -> "CertifyResult":
    """Sign a certificate of a deletion that passed the gate.

    Args:
        deletion: the model after the deletion, as :func:`delete` wrote it.
        leakage: attacks on it, as :func:`attack` wrote them; None if only subjects were deleted.
        evaluation: its evaluation, as :func:`evaluate` wrote it.
        out: folder to write the certificate bundle to.
        params: parameters; `certificate.signers` names the keys.

    Returns:
        The signed statement and the SHA-256 of the certificate.

    Raises:
        GateRefusedError: the evidence does not support the claim.
    """
    from mbd.steps import certify as step

    with _running("certify", params) as values:
        return step.run(values, Path(deletion), _path(leakage), Path(evaluation), Path(out))


def publish(
    bundle: Folder, model: Folder, store: str, *, out: Folder | None = None, params: Parameters = None
) -> "PublishResult":
    """Publish a certificate and its model to a store, with an entry in the store's log. Safe to repeat.

    Args:
        bundle: the certificate bundle, as :func:`certify` wrote it.
        model: the model that the certificate is about.
        store: `file://FOLDER` or `s3://BUCKET[/PREFIX]`.
        out: folder to write the published bundle and its receipt to.
        params: parameters.

    Returns:
        The receipt: objects, log entry, certificate.

    Raises:
        VerificationError: the bundle does not verify.
    """
    from mbd.steps import publish as step

    with _running("publish", params) as values:
        return step.run(values, Path(bundle), Path(model), store, _path(out))


def verify(
    bundle: Folder,
    *,
    model: Folder | None = None,
    trust: Folder | None = None,
    store: str | None = None,
    offline: bool = False,
    features: Folder | None = None,
    params: Parameters = None,
) -> "Verdict":
    """Verify a certificate.

    Args:
        bundle: the folder of a bundle, or the URL of a certificate in a store.
        model: a model folder to compare with the certificate.
        trust: the trust file, obtained independently of the certificate (default: `MBD_TRUST`, or `trust.json` in the
            user's configuration folder).
        store: URL of the store that says whether the certificate in a folder is in force.
        offline: ask no store; the decision is then at best `not verified`. A folder needs one of the two.
        features: a FeatureSet folder: train without the modality and compare bytes (exact deletions).
        params: parameters.

    Returns:
        The verdict: its decision (:mod:`mbd.formats.verdict`) and all checks with their reasons. A certificate
        that does not verify is a verdict, not an exception.

    Raises:
        UsageError: neither `store` nor `offline` was given for a folder.
    """
    from mbd.steps import verify as step

    folders = {"model": _path(model), "features": _path(features), "trust": _path(trust)}
    with _running("verify", params) as values:
        return step.run(values, str(bundle), store=store, offline=offline, **folders)


def guard(
    model: Folder, store: str, *, name: str | None = None, trust: Folder | None = None, params: Parameters = None
) -> "Admission":
    """Admit a model to serving, or refuse it.

    Args:
        model: the model folder that is about to be served.
        store: URL of the store that it was published in.
        name: the name under which it is to be loaded, where its weights have several.
        trust: the trust file (default: `MBD_TRUST`, or `trust.json` in the user's configuration folder).
        params: parameters.

    Returns:
        The certificate that admits it; `schema` is the JSON Schema of its inputs.

    Raises:
        VerificationError: no valid certificate is about these weights, or a file was purged.
    """
    from mbd.certificate.guard import admit
    from mbd.storage import open_store
    from mbd.trust.trust_file import read_trust, require_trust

    with _running("guard", params) as values:
        trusted, age = read_trust(require_trust(_path(trust))), values.certificate.checkpoint_age
        return admit(read_folder(Path(model)), open_store(store, values.store), trusted, max_age=age, name=name)


@contextmanager
def _running(command: str, given: Parameters) -> Iterator[Params]:
    """Within the context of a command: the parameters. Errors name arguments and functions, not options."""
    try:
        values = _params(given)
        with step_context(values, command, warn=getLogger(__name__).warning):
            yield values
    except MbdError as error:
        error.key = error.key and re.sub(r"^--([\w-]+)", lambda option: _argument(option[1]), error.key)
        error.hint = error.hint and _in_python(error.hint)
        raise


def _in_python(hint: str) -> str:
    hint = re.sub(r"--set ([\w.]+)=(\S+)", r"params={'\1': '\2'}", hint)
    return re.sub(r"`mbd ([a-z]+(?: new)?)[^`]*`|--([a-z][\w-]*)", _function_or_argument, hint)


def _function_or_argument(found: re.Match[str]) -> str:
    command, option = found.groups()
    function = _FUNCTIONS.get(command, command)
    return _argument(option) if option else f"`mbd.{function}`" if function in globals() else found[0]


def _argument(option: str) -> str:
    return _ARGUMENTS.get(option, option).replace("-", "_")


_FUNCTIONS = {"features": "make_features", "import": "import_model", "keys new": "make_keys"}
_ARGUMENTS = {"modality": "modalities", "subject": "subjects"}


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _path(given: Folder | None) -> Path | None:
    return None if given is None else Path(given)


def _params(given: Parameters) -> Params:
    if isinstance(given, Params):
        return given
    if isinstance(given, Mapping):
        return load_params(settings=given)
    return load_params(None if given is None else Path(given))
