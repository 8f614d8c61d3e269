"""The steps from data to a release, from `mbd features` to `mbd register`; `train` and `purge` are apart."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.options import (
    FILE,
    FIRST_TIME,
    FOLDER,
    MODALITIES,
    STORE,
    features,
    model,
    print_result,
    repeated,
    report_written,
    suggest,
    with_params,
)
from mbd.errors import UsageError
from mbd.formats.files import REPORT

if TYPE_CHECKING:
    from mbd.params import Params


_LOG = logging.getLogger(__name__)


@click.command()
@options.out("the FeatureSet")
@click.option("--modality", metavar="MODALITY", help="Modality to be revoked later: data without it are refused.")
@click.option("--dvc-repo", metavar="URL", help="Fetch a FeatureSet from this DVC repository instead of a source.")
@click.option("--dvc-rev", metavar="REV", help="Its branch, tag or commit [default: HEAD].")
@click.option("--dvc-path", metavar="PATH", help="Folder of the FeatureSet in that repository.")
@click.option("--dvc-remote", metavar="NAME", help="DVC remote to read from [default: the repository's].")
@with_params
def features_command(
    params: "Params",
    out: Path,
    modality: str | None,
    dvc_repo: str | None,
    dvc_rev: str | None,
    dvc_path: str | None,
    dvc_remote: str | None,
) -> None:
    """Convert feature data of any source to a FeatureSet, and validate it.

    The source is the parameter features.source: synthetic data by default; for other data,
    --set features.source.path=FILE (.npz, a table, MMSA and IEMOCAP pickles, CMU folders, a list of media files).
    """
    from mbd.steps import features

    if dvc_repo is None:
        _refuse_without_repository({"--dvc-rev": dvc_rev, "--dvc-path": dvc_path, "--dvc-remote": dvc_remote})
        summary = features.run(params, out, modality)
    elif not dvc_path:
        raise UsageError("--dvc-repo needs --dvc-path, the folder of the FeatureSet in the repository")
    else:
        from mbd.shredding.vault import made_plain

        prepare = made_plain(params.shredding, _LOG.warning)
        summary = features.run_revision(out, dvc_repo, dvc_rev or "HEAD", dvc_path, dvc_remote, prepare)
    print_result(summary, summary.to_text())
    report_written("FeatureSet", out)
    suggest("train", "--features", out, "--out", "MODEL")


def _refuse_without_repository(options: dict[str, str | None]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} needs --dvc-repo", key=name, value=value)


@click.command()
@features()
@model("Model folder, or a folder of seed-* models; repeatable, one for each method.", "models", multiple=True)
@click.option("--against", type=FOLDER, help="Model folder that the others are tested against (paired t-test).")
@options.out("metrics, tables and figures")
@with_params
def evaluate_command(
    params: "Params", features: Path, models: tuple[Path, ...], against: Path | None, out: Path
) -> None:
    """Evaluate models with every set of modalities missing, at random or by pattern, clean and corrupted."""
    from mbd.steps import evaluate

    result = evaluate.run(params, features, models, out, against=against)
    print_result(result.metrics, result.to_text())
    report_written("metrics, tables and figures", out, REPORT)


@click.command()
@features()
@model()
@click.option("--split", default="test", show_default=True, help="Split whose rows are scored.")
@click.option("--available", metavar="M,M,…", help="Use only these modalities [default: all that a row has].")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write: Parquet if its name ends with .parquet, else CSV.",
)
@with_params
def predict_command(
    params: "Params", features: Path, model: Path, split: str, available: str | None, out: Path
) -> None:
    """Score rows with a model, from the modalities that each row has."""
    from mbd.steps import predict

    names = None if available is None else [name.strip() for name in available.split(",") if name.strip()]
    done = predict.run(features, model, out, split=split, available=names)
    print_result(done, f"{done.rows} rows of {done.split} from {', '.join(done.modalities)}")
    if done.without_prediction:
        _LOG.warning("%d rows have none of these modalities: their prediction is empty", done.without_prediction)
    report_written("predictions", out)


@click.command("import")
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="state_dict: safetensors, what torch.save wrote, a checkpoint of Lightning, or a folder of Hugging Face. "
    "With --from: its path among the files of the version.",
)
@click.option(
    "--adapter",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a LoRA adapter of PEFT, which is merged into the weights.",
)
@click.option(
    "--from",
    "source",
    metavar="models:/NAME/VERSION",
    help="A version in the MLflow registry, or models:/NAME@ALIAS. Its weights are read; no code of it is run.",
)
@features()
@click.option(
    "--trained-on", required=True, multiple=True, metavar="MODALITY", help="A modality that training saw; repeatable."
)
@options.out("the model")
@with_params
def import_command(
    params: "Params",
    weights: Path | None,
    adapter: Path | None,
    source: str | None,
    features: Path,
    trained_on: tuple[str, ...],
    out: Path,
) -> None:
    """Import a model that was trained elsewhere.

    model.backbone is the import path of its factory, PACKAGE.MODULE:FACTORY, and model.options its arguments
    (docs/models.md). The FeatureSet is the data that it was trained on. Names in the file are those of the module, or
    have something that a wrapper put before all of them; model.rename says what else they are.
    """
    from mbd.steps import import_model

    if source and adapter:
        raise UsageError("an adapter is merged into a file or a folder", key="--adapter", hint="give --weights alone")
    if source:
        file = weights.as_posix() if weights else None
        result = import_model.run_from_registry(params, source, file, features, trained_on, out)
    elif weights:
        result = import_model.run(params, weights, features, trained_on, out, adapter=adapter)
    else:
        raise UsageError("the weights are not named", key="--weights", hint="give --weights FILE, or --from models:/…")
    print_result([result], import_model.to_text(result))
    report_written("model", out)
    _propose_branches(out)
    suggest("evaluate", "--features", features, "--model", out, "--out", "EVALUATION")


def _propose_branches(model: Path) -> None:
    """Log the branches that a module of fixed shape seems to have and that are not named."""
    from mbd.steps import branches

    proposals = {m: proposal for m, proposal in branches.run(model).items() if proposal and proposal.missing}
    if proposals:
        _LOG.warning("%s", branches.to_text(proposals))


@click.command()
@click.argument("model", type=FOLDER)
@click.option("--modality", "modalities", multiple=True, metavar="MODALITY", help="Only of this one; repeatable.")
@with_params
def branches_command(params: "Params", model: Path, modalities: tuple[str, ...]) -> None:
    """Propose model.branches: which submodules of a module of fixed shape belong to a modality.

    No data is read: the module runs on random rows, with random weights. The proposal is compared with what
    model.branches of the parameters names, else with what the model's record names.
    """
    from mbd.steps import branches

    proposals = branches.run(model, modalities, params.model.branches)
    print_result(branches.to_plain(proposals), branches.to_text(proposals))


@click.command()
@features()
@model("Model folder to delete from.")
@MODALITIES
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="ID",
    help="Delete the modality of this subject (group) only; repeatable. For deletion.method=exact.",
)
@click.option(
    "--reference",
    type=FOLDER,
    help="Model trained without the modality: to measure the distance to it; exact releases it.",
)
@options.out("the new model and its deletion record")
@with_params
def delete_command(
    params: "Params",
    features: Path,
    model: Path,
    modalities: tuple[str, ...],
    subjects: tuple[str, ...],
    reference: Path | None,
    out: Path,
) -> None:
    """Delete a modality from a model: surgery, certified or exact (deletion.method)."""
    from mbd.steps import delete

    result = delete.run(params, features, model, modalities, subjects, out, reference)
    if result:  # under torchrun only the first process has one
        print_result(result, result.to_text())
        report_written("new model and its deletion record", out)
        data, beside = ("--features", features), reference or "REFERENCE"
        suggest("evaluate", *data, "--model", out, "--model", beside, "--out", "EVALUATION")
        if not subjects:
            models = ("--before", model, "--after", out, "--reference", beside)
            suggest("attack", *data, *models, *repeated("--modality", modalities), "--out", "LEAKAGE")


@click.command()
@features()
@click.option("--before", type=FOLDER, help="Model before the deletion; may be left out in a later audit.")
@click.option("--after", type=FOLDER, required=True, help="Model after the deletion.")
@click.option("--reference", type=FOLDER, required=True, help="Model trained without the modality.")
@MODALITIES
@options.out("measurements, report and figures")
@with_params
def attack_command(
    params: "Params",
    features: Path,
    before: Path | None,
    after: Path,
    reference: Path,
    modalities: tuple[str, ...],
    out: Path,
) -> None:
    """Attack a model after a deletion; exit code 3 if the gate refuses it."""
    from mbd.files import read_json
    from mbd.steps import attack

    def show(summary: str) -> None:  # called for a refused model as well
        print_result(read_json(out / "leakage.json"), summary)
        report_written("measurements, report and figures", out, REPORT)

    attack.run(params, features, before, after, reference, modalities, out, show=show, progress=True)
    if before:
        if not Path(params.certificate.trust).exists():
            suggest("keys", "new")
        inputs = ("--deletion", after, "--leakage", out, "--evaluation", "EVALUATION")
        suggest("certify", *inputs, "--out", "CERTIFICATE")
    else:
        suggest("certificate", "reaudit", "CERTIFICATE", "--leakage", out)


@click.command()
@features()
@model("Model that was deleted from.")
@click.option("--reference", type=FOLDER, required=True, help="Model trained without the modality.")
@click.option("--deletion", type=FOLDER, required=True, help="Model after the deletion, as `mbd delete` wrote it.")
@click.option("--leakage", type=FOLDER, required=True, help="Attacks on it, as `mbd attack` wrote them.")
@options.out("the comparison")
@with_params
def compare_command(
    params: "Params", features: Path, model: Path, reference: Path, deletion: Path, leakage: Path, out: Path
) -> None:
    """Compare a deletion with the other methods: what is proven, utility, time, and what attacks find.

    The others are carried out for it (exact on a lattice), attacked, and removed; they are never certified.
    """
    from mbd.steps import compare

    result = compare.run(params, features, model, reference, deletion, leakage, out)
    print_result(result, result.to_text())
    report_written("comparison", out, compare.TABLE)


@click.command()
@click.option("--deletion", type=FOLDER, required=True, help="Model after the deletion, as `mbd delete` wrote it.")
@click.option(
    "--leakage",
    type=FOLDER,
    help="Attacks on it, as `mbd attack` wrote them; not needed if only subjects were deleted.",
)
@click.option("--evaluation", type=FOLDER, required=True, help="Evaluation of it, as `mbd evaluate` wrote it.")
@click.option("--request", type=FILE, help="JSON file with reference, received and due of the request.")
@click.option("--supersedes", metavar="SHA256", help="Earlier certificate that this one replaces.")
@options.out("the certificate bundle")
@with_params
def certify_command(
    params: "Params",
    deletion: Path,
    leakage: Path | None,
    evaluation: Path,
    request: Path | None,
    supersedes: str | None,
    out: Path,
) -> None:
    """Sign a certificate of a deletion that passed the gate."""
    from mbd.report.page.words import deadline
    from mbd.steps import certify

    done = certify.run(params, deletion, leakage, evaluation, out, request=request, supersedes=supersedes)
    predicate = done.statement.predicate
    text = (
        f"certificate {done.certificate}\n"
        f"{predicate.guarantee.kind} deletion of {', '.join(predicate.deleted.modalities)}, signed\n"
        f"issued {predicate.issued:%Y-%m-%d %H:%M:%S} UTC; {deadline(predicate)} {predicate.reaudit_by:%Y-%m-%d}"
    )
    print_result(done, text)
    if done.private:
        _LOG.info("commitment openings saved to %s; back them up and keep them secret", done.private)
    report_written("certificate bundle", out)
    suggest("publish", out, "--model", deletion, "--out", "PUBLISHED")


@click.command()
@click.argument("bundle", type=FOLDER)
@model("Model that the certificate is about.")
@STORE
@options.out("the published bundle and its receipt", required=False)
@FIRST_TIME
@with_params
def publish_command(params: "Params", bundle: Path, model: Path, store: str | None, out: Path | None) -> None:
    """Publish a certificate BUNDLE and its model: objects, log entry, certificate, pointer. Safe to repeat."""
    from mbd.steps import publish

    url = store or params.store.url
    receipt = publish.run(params, bundle, model, url, out).receipt
    text = (
        f"certificate {receipt.certificate}\n"
        f"published in {url}: {len(receipt.objects)} objects, entry {receipt.log.index} of the log\n\n"
        f"Object Lock: {receipt.object_lock}\n"
        f"anyone can verify it: mbd verify {url}/certificates/{receipt.certificate} --trust TRUST-FILE"
    )
    print_result(receipt, text)
    if out is not None:
        report_written("published bundle with its receipt", out)
        suggest("verify", out, "--model", model, "--store", url, "--trust", params.certificate.trust)
        suggest("purge", "--receipt", out / "receipt.json", "--store", url, "--dry-run")


@click.command()
@model("Trained model.")
@click.option(
    "--reference",
    "references",
    type=FOLDER,
    multiple=True,
    metavar="DIR",
    help="Model that was trained like it, --without a modality, or a folder of such models; repeatable.",
)
@click.option("--as", "name", metavar="NAME", help="Name under which it is served [default: certificate.model].")
@STORE
@features(
    required=False,
    help="FeatureSet to compare it on with the current release: it becomes current only if it is not worse.",
)
@FIRST_TIME
@with_params
def register_command(
    params: "Params",
    model: Path,
    references: tuple[Path, ...],
    name: str | None,
    store: str | None,
    features: Path | None,
) -> None:
    """Register a trained model and its references: a signed, logged statement. Safe to repeat.

    It becomes the current release of its name, unless --features shows that it is worse than the one that is. A model
    that was trained on what is revoked for the name is refused (exit code 4).
    """
    from mbd.production import register

    url = store or params.store.url
    result = register.run(params, model, references, name or params.certificate.model, url, features)
    ready = ", ".join(f"without {without}" for without in result.references) or "none"
    state = "current" if result.promoted else "not promoted"
    lines = [
        f"registration {result.registration}",
        f"{result.model}: {state} ({result.reason})",
        f"references: {ready}",
    ]
    print_result(result, "\n".join(lines))
    suggest("models", "show", result.model, "--store", url)
