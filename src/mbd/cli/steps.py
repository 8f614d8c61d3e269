"""The steps from data to a release, from `mbd features` to `mbd register`; `purge` is apart."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import print_result, repeated, report_written, suggest, with_params
from mbd.errors import UsageError
from mbd.formats.files import REPORT

if TYPE_CHECKING:
    from mbd.params import Params


_LOG = logging.getLogger(__name__)
_REFERENCE = options.folder("--reference", "Model trained without the modality.", required=True)
_DELETION = options.folder("--deletion", "Model after the deletion, as `mbd delete` wrote it.", required=True)


@click.command()
@options.out("the FeatureSet")
@click.option("--modality", metavar="MODALITY", help="Modality to be revoked later: data without it are refused.")
@click.option("--dvc-repo", metavar="URL", help="Fetch a FeatureSet from this DVC repository instead of a source.")
@click.option("--dvc-rev", metavar="REV", help="Its branch, tag or commit [default: HEAD].")
@click.option("--dvc-path", metavar="PATH", help="Folder of the FeatureSet in that repository.")
@click.option("--dvc-remote", metavar="NAME", help="DVC remote to read from [default: the repository's].")
@with_params
def features_command(
    params: "Params", out: Path, modality: str | None, dvc_repo: str | None, dvc_path: str | None, **rest: str | None
) -> None:
    """Convert feature data of any source to a FeatureSet, and validate it.

    The source is the parameter features.source: synthetic data by default; for other data,
    --set features.source.path=FILE (.npz, a table, MMSA and IEMOCAP pickles, CMU folders, a list of media files).
    """
    from mbd.steps import features

    if dvc_repo is None:
        for name, value in {"dvc_path": dvc_path, **rest}.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} needs --dvc-repo", key=option, value=value)
        summary = features.run(params, out, modality)
    elif not dvc_path:
        raise UsageError("--dvc-repo needs --dvc-path, the folder of the FeatureSet in the repository")
    else:
        from mbd.shredding.vault import made_plain

        prepare = made_plain(params.shredding, _LOG.warning)
        rev, remote = rest["dvc_rev"] or "HEAD", rest["dvc_remote"]
        summary = features.run_revision(out, dvc_repo, rev, dvc_path, remote, prepare)
    print_result(summary, summary.to_text())
    report_written("FeatureSet", out)
    suggest("train", "--features", out, "--out", "MODEL")


@click.command()
@options.features()
@options.out("the model")
@options.several("--without", "without", "MODALITY", "Train as if the data had no such modality; repeatable.")
@click.option("--seeds", metavar="N,N,…", help="Train one model for each seed, in OUT/seed-N.")
@options.flag(
    "--references",
    "Train the references of the model: one without each modality of requests.revocable, in OUT/MODALITY.",
)
@with_params
def train_command(
    params: "Params", features: Path, out: Path, without: tuple[str, ...], seeds: str | None, *, references: bool
) -> None:
    """Train a model; an interrupted training continues when it is run again.

    model.backbone chooses the kind: joint, lattice (the fastest exact deletion), or the import path of a factory of
    PyTorch modules, PACKAGE.MODULE:FACTORY (docs/models.md).
    """
    from mbd.steps import train

    if references and (without or seeds is not None):
        raise click.UsageError("--references goes with neither --without nor --seeds")
    if references:
        results = train.run_references(params, features, out)
    elif seeds is None:
        result = train.run(params, features, out, without)
        results = [result] if result else []
    else:
        results = train.run_seeds(params, features, out, _numbers(seeds), without)
    if results:  # under torchrun only the first process has some
        print_result(results, train.to_text(results))
        report_written(f"model{'s' * (len(results) > 1)}", out)
        if references:
            suggest("register", "--model", "MODEL", "--reference", out)
        else:
            _suggest_after_training(params, features, out, without)


def _suggest_after_training(params: "Params", features: Path, out: Path, without: tuple[str, ...]) -> None:
    """Suggest to measure a model and to train its reference; after a reference, to delete by a method that suits it."""
    from mbd.deletion.methods import methods_for

    data = ("--features", features)
    if without:
        gone, suited = repeated("--modality", without), methods_for(params.model.backbone)
        unsuited = params.deletion.method not in suited
        method = repeated("--set", [f"deletion.method={name}" for name in suited[:1] if unsuited])
        suggest("delete", *data, "--model", "MODEL", *gone, "--reference", out, *method, "--out", "DELETED")
    else:
        suggest("evaluate", *data, "--model", out, "--out", "EVALUATION")
        suggest("train", *data, "--without", "MODALITY", "--out", "REFERENCE")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers like 0,1,2", param_hint="--seeds") from None


@click.command()
@options.features()
@options.model("Model folder, or a folder of seed-* models; repeatable, one for each method.", "models", multiple=True)
@options.folder("--against", "Model folder that the others are tested against (paired t-test).")
@options.out("metrics, tables and figures")
@with_params
def evaluate_command(params: "Params", out: Path, **given: Any) -> None:
    """Evaluate models with every set of modalities missing, at random or by pattern, clean and corrupted."""
    from mbd.steps import evaluate

    result = evaluate.run(params, out=out, **given)
    print_result(result.metrics, result.to_text())
    report_written("metrics, tables and figures", out, REPORT)


@click.command()
@options.features()
@options.model()
@click.option("--split", default="test", show_default=True, help="Split whose rows are scored.")
@click.option("--available", metavar="M,M,…", help="Use only these modalities [default: all that a row has].")
@options.path("--out", "File to write: Parquet if its name ends with .parquet, else CSV.", required=True)
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
@options.path(
    "--weights",
    "state_dict: safetensors, what torch.save wrote, a checkpoint of Lightning, or a folder of Hugging Face. "
    "With --from: its path among the files of the version.",
)
@options.folder("--adapter", "Folder of a LoRA adapter of PEFT, which is merged into the weights.")
@click.option(
    "--from",
    "source",
    metavar="models:/NAME/VERSION",
    help="A version in the MLflow registry, or models:/NAME@ALIAS. Its weights are read; no code of it is run.",
)
@options.features()
@options.several("--trained-on", "trained_on", "MODALITY", "A modality that training saw; repeatable.", required=True)
@options.out("the model")
@with_params
def import_command(
    params: "Params", weights: Path | None, adapter: Path | None, source: str | None, **given: Any
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
        result = import_model.run_from_registry(params, source, file, **given)
    elif weights:
        result = import_model.run(params, weights, **given, adapter=adapter)
    else:
        raise UsageError("the weights are not named", key="--weights", hint="give --weights FILE, or --from models:/…")
    out: Path = given["out"]
    print_result([result], import_model.to_text(result))
    report_written("model", out)
    if missing := {m: each for m, each in import_model.propose_branches(out).items() if each and each.missing}:
        _LOG.warning("%s", import_model.proposals_to_text(missing))
    suggest("evaluate", "--features", given["features"], "--model", out, "--out", "EVALUATION")


@click.command()
@click.argument("model", type=options.FOLDER)
@options.several("--modality", "modalities", "MODALITY", "Only of this one; repeatable.")
@with_params
def branches_command(params: "Params", **given: Any) -> None:
    """Propose model.branches: which submodules of a module of fixed shape belong to a modality.

    No data is read: the module runs on random rows, with random weights. The proposal is compared with what
    model.branches of the parameters names, else with what the model's record names.
    """
    from mbd.steps import import_model

    proposals = import_model.propose_branches(**given, named=params.model.branches)
    print_result(import_model.proposals_to_plain(proposals), import_model.proposals_to_text(proposals))


@click.command()
@options.features()
@options.model("Model folder to delete from.")
@options.MODALITIES
@options.several(
    "--subject",
    "subjects",
    "ID",
    "Delete the modality of this subject (group) only; repeatable. For deletion.method=exact.",
)
@options.folder("--reference", "Model trained without the modality: to measure the distance to it; exact releases it.")
@options.out("the new model and its deletion record")
@with_params
def delete_command(params: "Params", modalities: tuple[str, ...], reference: Path | None, **given: Any) -> None:
    """Delete a modality from a model: surgery, certified or exact (deletion.method)."""
    from mbd.steps import delete

    result = delete.run(params, modalities=modalities, reference=reference, **given)
    if result:  # under torchrun only the first process has one
        print_result(result, result.to_text())
        out, data, beside = given["out"], ("--features", given["features"]), reference or "REFERENCE"
        report_written("new model and its deletion record", out)
        suggest("evaluate", *data, "--model", out, "--model", beside, "--out", "EVALUATION")
        if not given["subjects"]:
            models = ("--before", given["model"], "--after", out, "--reference", beside)
            suggest("attack", *data, *models, *repeated("--modality", modalities), "--out", "LEAKAGE")


@click.command()
@options.features()
@options.folder("--before", "Model before the deletion; may be left out in a later audit.")
@options.folder("--after", "Model after the deletion.", required=True)
@_REFERENCE
@options.MODALITIES
@options.out("measurements, report and figures")
@with_params
def attack_command(params: "Params", before: Path | None, after: Path, out: Path, **given: Any) -> None:
    """Attack a model after a deletion; exit code 3 if the gate refuses it."""
    from mbd.files import read_json
    from mbd.steps import attack

    def show(summary: str) -> None:  # called for a refused model as well
        print_result(read_json(out / "leakage.json"), summary)
        report_written("measurements, report and figures", out, REPORT)

    attack.run(params, before=before, after=after, out=out, **given, show=show)
    if before:
        if not Path(params.certificate.trust).exists():
            suggest("keys", "new")
        inputs = ("--deletion", after, "--leakage", out, "--evaluation", "EVALUATION")
        suggest("certify", *inputs, "--out", "CERTIFICATE")
    else:
        suggest("certificate", "reaudit", "CERTIFICATE", "--leakage", out)


@click.command()
@options.features()
@options.model("Model that was deleted from.")
@_REFERENCE
@_DELETION
@options.folder("--leakage", "Attacks on it, as `mbd attack` wrote them.", required=True)
@options.out("the comparison")
@with_params
def compare_command(params: "Params", out: Path, **given: Any) -> None:
    """Compare a deletion with the other methods: what is proven, utility, time, and what attacks find.

    The others are carried out for it (exact on a lattice), attacked, and removed; they are never certified.
    """
    from mbd.steps import compare

    result = compare.run(params, out=out, **given)
    print_result(result, result.to_text())
    report_written("comparison", out, compare.TABLE)


@click.command()
@_DELETION
@options.folder("--leakage", "Attacks on it, as `mbd attack` wrote them; not needed if only subjects were deleted.")
@options.folder("--evaluation", "Evaluation of it, as `mbd evaluate` wrote it.", required=True)
@click.option("--request", type=options.FILE, help="JSON file with reference, received and due of the request.")
@click.option("--supersedes", metavar="SHA256", help="Earlier certificate that this one replaces.")
@options.out("the certificate bundle")
@with_params
def certify_command(params: "Params", deletion: Path, out: Path, **given: Any) -> None:
    """Sign a certificate of a deletion that passed the gate."""
    from mbd.report.page.words import deadline
    from mbd.steps import certify

    done = certify.run(params, deletion, out=out, **given)
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
@click.argument("bundle", type=options.FOLDER)
@options.model("Model that the certificate is about.")
@options.STORE
@options.out("the published bundle and its receipt", required=False)
@options.FIRST_TIME
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
@options.model("Trained model.")
@options.several(
    "--reference",
    "references",
    "DIR",
    "Model that was trained like it, --without a modality, or a folder of such models; repeatable.",
    type=options.FOLDER,
)
@click.option("--as", "name", metavar="NAME", help="Name under which it is served [default: certificate.model].")
@options.STORE
@options.features(
    required=False,
    help="FeatureSet to compare it on with the current release: it becomes current only if it is not worse.",
)
@options.FIRST_TIME
@with_params
def register_command(params: "Params", name: str | None, store: str | None, **given: Any) -> None:
    """Register a trained model and its references: a signed, logged statement. Safe to repeat.

    It becomes the current release of its name, unless --features shows that it is worse than the one that is. A model
    that was trained on what is revoked for the name is refused (exit code 4).
    """
    from mbd.production import register

    url = store or params.store.url
    result = register.run(params, name=name or params.certificate.model, store=url, **given)
    ready = ", ".join(f"without {without}" for without in result.references) or "none"
    state = "current" if result.promoted else "not promoted"
    text = f"registration {result.registration}\n{result.model}: {state} ({result.reason})\nreferences: {ready}"
    print_result(result, text)
    suggest("models", "show", result.model, "--store", url)
