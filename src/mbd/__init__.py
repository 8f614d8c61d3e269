"""Missing-by-Design: make a trained multimodal model forget a modality, and prove it.

>>> import mbd
>>> mbd.make_features("build/features")
>>> mbd.train("build/features", "build/model")
>>> model = mbd.load("build/model")
>>> model.predict({"text": matrix})        # any subset of model.modalities

What `__all__` lists is the public API; semantic versioning holds for it and for nothing else. Paths may be strings.
`params` is a path of a parameters file, a mapping of dotted names to values (``{"model.backbone": "lattice"}``, as with
`--set` on top of ./params.yaml), or None for ./params.yaml and the defaults. Errors are subclasses of `MbdError`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbd.certificate.guard import Admission
    from mbd.certificate.trust import Trust
    from mbd.certificate.verify import Verdict
    from mbd.errors import DataError, GateRefusedError, MbdError, UsageError, VerificationError
    from mbd.features.contract import FeatureSet
    from mbd.formats.leakage import LeakageRecord
    from mbd.model.predictor import Model
    from mbd.params import Params
    from mbd.steps.certify import CertifyResult
    from mbd.steps.delete import DeletionResult
    from mbd.steps.evaluate import EvaluationResult
    from mbd.steps.features import FeaturesSummary
    from mbd.steps.publish import PublishResult
    from mbd.steps.train import TrainingResult

    Folder = Path | str
    Parameters = Params | Path | str | Mapping[str, object] | None

__version__ = "0.1.0"
__all__ = [
    "DataError",
    "FeatureSet",
    "GateRefusedError",
    "MbdError",
    "Model",
    "UsageError",
    "VerificationError",
    "__version__",
    "attack",
    "certify",
    "delete",
    "evaluate",
    "guard",
    "load",
    "make_features",
    "make_keys",
    "publish",
    "train",
    "verify",
]
_ERRORS = ("DataError", "GateRefusedError", "MbdError", "UsageError", "VerificationError")
_CLASSES = {
    "FeatureSet": "mbd.features.contract",
    "Model": "mbd.model.predictor",
    **dict.fromkeys(_ERRORS, "mbd.errors"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a class of the public API
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module 'mbd' has no attribute {name!r}")


def make_features(out: "Folder", *, params: "Parameters" = None) -> "FeaturesSummary":
    """Convert feature data to a FeatureSet, and validate it.

    Args:
        out: folder to write the FeatureSet to.
        params: parameters; `features.source` names the data (default: synthetic).

    Returns:
        Rows, modalities and labels of the FeatureSet; `to_text()` prints them.

    Raises:
        DataError: the data are not valid.
    """
    from mbd.steps import features  # noqa: PLC0415 -- `import mbd` stays instant

    return features.run(_params(params), Path(out))


def train(
    features: "Folder", out: "Folder", *, without: Sequence[str] = (), params: "Parameters" = None
) -> "TrainingResult | None":
    """Train a model.

    Args:
        features: a FeatureSet folder.
        out: folder to write the model to.
        without: modalities that training must not see; this makes a reference model.
        params: parameters; `model.backbone` chooses the model.

    Returns:
        The result; None in all processes of torchrun but the first.
    """
    from mbd.steps import train as step  # noqa: PLC0415

    return step.run(_params(params), Path(features), Path(out), tuple(without))


def load(folder: "Folder") -> "Model":
    """Load a trained model.

    Args:
        folder: a model folder, as :func:`train` or :func:`delete` wrote it.

    Returns:
        The model; its `predict` takes any subset of its modalities.

    Raises:
        DataError: the folder has no valid model.
    """
    from mbd.model import predictor  # noqa: PLC0415

    return predictor.load(folder)


def evaluate(
    features: "Folder",
    models: "Sequence[Folder]",
    out: "Folder",
    *,
    against: "Folder | None" = None,
    params: "Parameters" = None,
) -> "EvaluationResult":
    """Evaluate models with modalities missing, clean and corrupted.

    Args:
        features: a FeatureSet folder.
        models: model folders, one for each method.
        out: folder to write metrics, tables and figures to.
        against: the model that the others are tested against.
        params: parameters.

    Returns:
        All metrics, as in `metrics.json`, and their summary as text.
    """
    from mbd.steps import evaluate as step  # noqa: PLC0415

    reference = None if against is None else Path(against)
    return step.run(_params(params), Path(features), [Path(model) for model in models], Path(out), against=reference)


def delete(
    features: "Folder",
    model: "Folder",
    modalities: Sequence[str],
    out: "Folder",
    *,
    subjects: Sequence[str] = (),
    reference: "Folder | None" = None,
    params: "Parameters" = None,
) -> "DeletionResult | None":
    """Delete modalities from a model.

    Args:
        features: the FeatureSet folder that the model was trained on.
        model: the model folder.
        modalities: modalities to delete.
        out: folder to write the new model and its deletion record to.
        subjects: delete the modalities of these subjects only (method `exact`).
        reference: a model trained without the modalities, to measure the distance to it.
        params: parameters; `deletion.method` chooses surgery, certified or exact.

    Returns:
        The deletion record with its guarantee; None in all processes of torchrun but the first.
    """
    from mbd.steps import delete as step  # noqa: PLC0415

    beside = None if reference is None else Path(reference)
    return step.run(_params(params), Path(features), Path(model), modalities, subjects, Path(out), beside)


def attack(
    features: "Folder",
    after: "Folder",
    reference: "Folder",
    modalities: Sequence[str],
    out: "Folder",
    *,
    before: "Folder | None" = None,
    params: "Parameters" = None,
) -> "LeakageRecord":
    """Attack a model after a deletion.

    Args:
        features: the FeatureSet folder that the models were trained on.
        after: the model after the deletion.
        reference: a model trained without the modalities.
        modalities: the deleted modalities.
        out: folder to write measurements, report and figures to.
        before: the model before the deletion.
        params: parameters.

    Returns:
        All measurements and the gate's decision.

    Raises:
        GateRefusedError: the gate refused the model; `out` is written all the same.
    """
    from mbd.steps import attack as step  # noqa: PLC0415

    old = None if before is None else Path(before)
    return step.run(_params(params), Path(features), old, Path(after), Path(reference), modalities, Path(out))


def make_keys(folder: "Folder", name: str = "signer") -> "Trust":
    """Create a key that signs certificates, a key for the log, and the trust file.

    Args:
        folder: folder for the keys; by default certificates are signed with keys in build/keys.
        name: holder of the key.

    Returns:
        The trusted keys.

    Raises:
        UsageError: there are keys in the folder.
    """
    from mbd.certificate.keys import make_keys as create  # noqa: PLC0415

    return create(Path(folder), name)


def certify(
    deletion: "Folder",
    leakage: "Folder | None",
    evaluation: "Folder",
    out: "Folder",
    *,
    params: "Parameters" = None,
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
    from mbd.steps import certify as step  # noqa: PLC0415

    attacks = None if leakage is None else Path(leakage)
    return step.run(_params(params), Path(deletion), attacks, Path(evaluation), Path(out))


def publish(
    bundle: "Folder", model: "Folder", store: str, *, out: "Folder | None" = None, params: "Parameters" = None
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
    from mbd.steps import publish as step  # noqa: PLC0415

    return step.run(_params(params), Path(bundle), Path(model), store, None if out is None else Path(out))


def verify(
    bundle: "Folder",
    *,
    model: "Folder | None" = None,
    trust: "Folder | None" = None,
    features: "Folder | None" = None,
    params: "Parameters" = None,
) -> "Verdict":
    """Verify a certificate.

    Args:
        bundle: the folder of a bundle, or the URL of a certificate in a store.
        model: a model folder to compare with the certificate.
        trust: the trust file, obtained independently of the certificate.
        features: a FeatureSet folder: train without the modality and compare bytes (exact deletions).
        params: parameters.

    Returns:
        The verdict: all checks with their reasons. A failed verification is a verdict, not an exception.
    """
    from mbd.steps import verify as step  # noqa: PLC0415

    given = {"model": model, "trust": trust, "features": features}
    paths = {name: None if value is None else Path(value) for name, value in given.items()}
    return step.run(_params(params), str(bundle), **paths)


def guard(model: "Folder", store: str, *, trust: "Folder | None" = None, params: "Parameters" = None) -> "Admission":
    """Admit a model to serving, or refuse it.

    Args:
        model: the model folder that is about to be served.
        store: URL of the store that it was published in.
        trust: the trust file (default: `certificate.trust`).
        params: parameters.

    Returns:
        The certificate that admits it; `schema` is the JSON Schema of its inputs.

    Raises:
        VerificationError: no valid certificate is about these weights, or a file was purged.
    """
    from mbd.certificate.guard import admit  # noqa: PLC0415
    from mbd.certificate.trust import read_trust  # noqa: PLC0415
    from mbd.storage import open_store  # noqa: PLC0415

    values = _params(params)
    return admit(Path(model), open_store(store, values.store), read_trust(Path(trust or values.certificate.trust)))


def _params(given: "Parameters") -> "Params":
    from mbd.params import Params, load_params  # noqa: PLC0415

    if isinstance(given, Params):
        return given
    if isinstance(given, Mapping):
        import yaml  # noqa: PLC0415

        style: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10_000}
        dumped = {name: yaml.safe_dump(value, **style) for name, value in given.items()}
        end = "...\n"  # which YAML writes after a bare scalar
        return load_params(settings=[f"{name}={text.removesuffix(end).strip()}" for name, text in dumped.items()])
    return load_params(None if given is None else Path(given))
