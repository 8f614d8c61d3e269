"""Step `import`: a model folder from weights that were trained elsewhere: a file, a folder, or an MLflow registry.

`branches` says in words which submodules of a module of one's own belong to a modality (:mod:`mbd.model.branches`).

The factory of the parameters builds the module, and the tensors of the file get the names that they have in it. Which
modalities training saw has to be said, because the weights do not show it, and all that deletion and certificate claim
rests on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest
from mbd.model.checkpoint import load_model
from mbd.model.matching import MatchedNames, match_names
from mbd.outputs import step_run
from mbd.params import Params
from mbd.registry import BACKBONES
from mbd.report.text import table
from mbd.steps.step import reads
from mbd.steps.train import TrainingResult, write_model
from mbd.steps.train import to_text as metrics_to_text
from mbd.storage.mlflow import MlflowRegistry, StoredArtifact
from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.model.branches import Proposal

NAME = "import"
_SUFFIXES = ((".safetensors",), (".pt", ".pth", ".bin", ".ckpt"))
"""of files with weights, the better ones first"""


@dataclass(frozen=True)
class ImportResult(TrainingResult):
    """A model that was imported."""

    weights: tuple[MatchedNames, ...]
    """which tensors of the file became which of the module"""


def to_text(result: ImportResult) -> str:
    """Return what became of the tensors of the file, and the metrics, for a terminal."""
    rows = [(names.in_file, names.in_module, names.tensors, f"{names.numbers:,}") for names in result.weights]
    names = table(["in the file", "in the module", "tensors", "numbers"], rows)
    return f"{names}\n\n{metrics_to_text([result])}"


@reads(data="features")
def run_from_registry(
    params: Params, source: str, file: str | None, features: Path, trained_on: Sequence[str], out: Path
) -> ImportResult:
    """Import a version of a model that is registered in MLflow, `models:/NAME/VERSION` or `models:/NAME@ALIAS`.

    `file` is the path of the weights among its files; None: the only one that can be weights. See :func:`run`.
    """
    registry = MlflowRegistry(params.mlflow)
    version = registry.version(source)
    with TemporaryDirectory(prefix="mbd-import-") as folder:
        weights = registry.fetch(_weights(list(registry.files(version.location)), file, str(version)), Path(folder))
        return run(params, weights, features, trained_on, out, origin=str(version))


def _weights(files: Sequence[StoredArtifact], wanted: str | None, version: str) -> StoredArtifact:
    """Return the file with the weights of a version."""
    chosen = [file for file in files if file.path == wanted]
    if wanted is None:
        kinds = ([file for file in files if file.path.endswith(suffixes)] for suffixes in _SUFFIXES)
        chosen = next((kind for kind in kinds if kind), [])
    if len(chosen) != 1:
        raise UsageError(
            "this version has no such file" if wanted else f"{len(chosen)} files of this version can be its weights",
            key="--weights" if wanted else "--from",
            value=wanted or version,
            hint=f"name the file with --weights: {', '.join(file.path for file in files) or 'there is none'}",
        )
    return chosen[0]


@reads(data="features")
def run(
    params: Params,
    weights: Path,
    features: Path,
    trained_on: Sequence[str],
    out: Path,
    *,
    adapter: Path | None = None,
    origin: str | None = None,
) -> ImportResult:
    """Write the model with these weights, which training on some modalities of `features` gave, to `out`.

    The weights are a file, or a folder of Hugging Face; those in the folder `adapter` are merged into them. `origin` is
    where they came from, if that is not their path.
    """
    if not BACKBONES.is_path(params.model.backbone):
        raise UsageError(
            "the factory of the module has to be named",
            key="model.backbone",
            value=params.model.backbone,
            hint="--set model.backbone=PACKAGE.MODULE:FACTORY",
        )
    if not weights.exists():
        raise DataError(
            "there is no such file with weights",
            file=weights,
            hint="give safetensors, or what torch.save(module.state_dict(), FILE) wrote",
        )
    everything = FeatureSet.open(features, verify=True).modalities
    if unknown := [m for m in trained_on if m not in everything]:
        raise UsageError(
            f"the data has no modality {unknown[0]!r}", key="--trained-on", hint=f"it has {', '.join(everything)}"
        )
    data = FeatureSet.open(features, without=tuple(m for m in everything if m not in trained_on))
    with step_run(NAME, out, {"model": params.model}) as step:
        step.read("weights", weights)
        step.inputs["weights"]["path"] = origin or str(weights)
        if adapter:
            step.read("adapter", adapter)
        step.inputs["features"] = {"path": str(features), "digest": canonical_digest(data.digests())}
        from mbd.model.lora import merge_adapter  # noqa: PLC0415 -- imports torch
        from mbd.model.state_dict import read_state  # noqa: PLC0415
        from mbd.training.module import import_weights  # noqa: PLC0415

        names: list[MatchedNames] = []

        def fit(built: Mapping[str, Array]) -> Mapping[str, Array]:
            matches = match_names(read_state(weights), built, params.model.rename, params.model.backbone)
            names.extend(matches.table)
            return merge_adapter(matches.tensors, adapter, params.model.rename) if adapter else matches.tensors

        without = tuple(m for m in everything if m not in trained_on)
        result = write_model(step, import_weights(data, params, fit), data, without)
    return ImportResult(**vars(result), weights=tuple(names))


@reads("model")
def propose_branches(
    model: Path, modalities: Sequence[str] = (), named: Mapping[str, Sequence[str]] | None = None
) -> dict[str, "Proposal | None"]:
    """Propose which submodules belong to each of some modalities and to them together, or to each that a model takes.

    A proposal is compared with the branches in `named`, by modality, or with those that the model's record names. It is
    None where the factory builds a smaller model without the modality, which needs no branches.
    """
    record, _ = load_model(model, verify=False)
    if not BACKBONES.is_path(record.backbone):
        raise UsageError(
            "only a module of one's own has branches",
            file=model,
            key="backbone",
            value=record.backbone,
            hint="its record says of every tensor what belongs to which modality: see model.json",
        )
    if foreign := [m for m in modalities if m not in record.inputs]:
        hint = f"it takes {', '.join(record.inputs)}"
        raise UsageError(f"the model takes no {foreign[0]}", key="--modality", hint=hint)
    from mbd.model.branches import propose, with_branches  # noqa: PLC0415 -- imports torch
    from mbd.model.module import architecture_of  # noqa: PLC0415

    architecture = with_branches(architecture_of(record), named or {})
    proposals = {m: propose(architecture, m) for m in modalities or record.inputs}
    if len(modalities) > 1:
        proposals[" and ".join(modalities)] = propose(architecture, *modalities)
    return proposals


def proposals_to_plain(proposals: Mapping[str, "Proposal | None"]) -> dict[str, Any]:
    """Return proposals as JSON values."""
    return {
        modality: proposal and {**asdict(proposal), "missing": proposal.missing, "setting": proposal.setting}
        for modality, proposal in proposals.items()
    }


def proposals_to_text(proposals: Mapping[str, "Proposal | None"]) -> str:
    """Return proposals for a terminal."""
    return "\n\n".join(_proposal_text(modality, proposal) for modality, proposal in proposals.items())


def _proposal_text(modality: str, proposal: "Proposal | None") -> str:
    if proposal is None:
        return f"{modality}: the factory builds a smaller model without it, so no branches are needed"
    numbers = f"{proposal.cut_with_proposal:,} of {proposal.numbers:,} numbers"
    if not proposal.proposed:
        return "\n".join([f"{modality}: no submodule is its own; {numbers} exist for it alone", *proposal.left_open])
    now = f"; with what model.branches names, {proposal.cut:,}" if proposal.missing else "; all are named"
    rows = [
        [b.name, ", ".join(b.hears), f"{b.numbers:,}", "no" if b.name in proposal.missing else "yes"]
        for b in proposal.proposed
    ]
    lines = [
        f"{modality}: {numbers} exist for it alone with these branches{now}",
        table(["branch", "hears", "numbers", "named"], rows),
        *proposal.left_open,
    ]
    if proposal.missing:
        lines.append(f"to accept: --set '{proposal.setting}', where the model is trained or imported")
    return "\n".join(lines)
