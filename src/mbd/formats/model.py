"""`model.json`: what a model is, what it was made from, and what each tensor could see.

Deletion, verification and reports read this and nothing else. For every tensor:

- `sees`: the modalities whose data could have had any influence on its values;
- `belongs_to`: the modality for which alone the tensor exists (it goes when that modality is revoked), or null;
- `columns`: for a tensor that multiplies raw input, which input columns read which modality.

A lattice has a module for every set of modalities (its tag). Its tensors are named, a dot in a modality being escaped,

    projection.MODALITY.PART        the projection of one modality
    module.TAG.PART                 a module; TAG is its modalities with `+` between them
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field

from mbd.files import canonical_digest
from mbd.formats.features import Shape, Task
from mbd.formats.guarantee import Guarantee
from mbd.records import Digest, Name, Record, RelativePath, dotless, dotted

Tag = tuple[str, ...]
"""a set of modalities, in alphabetical order"""
T = TypeVar("T")
_MODULE = "module"


def tensor_name(tag: Tag, part: str) -> str:
    """Return the name in the checkpoint of a module's tensor."""
    return f"{_MODULE}.{'+'.join(map(dotless, tag))}.{part}"


def projection_name(modality: str, part: str) -> str:
    """Return the name in the checkpoint of a projection's tensor."""
    return f"projection.{dotless(modality)}.{part}"


def landmarks_name(modality: str) -> str:
    """Return the name, within a module, of its landmarks in one modality."""
    return f"landmarks.{dotless(modality)}"


def module_tensors(modalities: Collection[str], tensors: Mapping[str, T]) -> dict[Tag, dict[str, T]]:
    """Return the tensors of each module, by their names in it, smaller tags first."""
    modules: dict[Tag, dict[str, T]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        module, _, own = rest.partition(".")
        tag = tuple(dotted(part) for part in module.split("+"))
        if kind == _MODULE and set(tag) <= set(modalities) and list(tag) == sorted(set(tag)):
            modules.setdefault(tag, {})[own] = tensor
    return {tag: modules[tag] for tag in sorted(modules, key=lambda tag: (len(tag), tag))}


ComponentName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]
"""a backbone or a deletion method: a built-in one, or one of a plug-in, whose code verification does not need"""
Format = Literal["urn:missing-by-design:model:v1"]
Splits = Literal["train", "train+valid"]
Size = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class ColumnRange(Record):
    """Input columns `start` … `stop − 1` (the tensor's last axis) read the raw input of `reads`."""

    start: int
    stop: int
    reads: str


class TensorRecord(Record):
    """One tensor: its shape, and what its training could see."""

    shape: tuple[int, ...]
    dtype: str
    sees: tuple[str, ...]
    belongs_to: str | None = None
    columns: tuple[ColumnRange, ...] = ()


@dataclass(frozen=True)
class RecordedTraining:
    """What the `spec` of a model says about its training."""

    model: dict[str, Any]
    """parameters of the section `model`, besides the backbone"""
    training: dict[str, Any]
    """parameters of the section `training` that are recorded"""
    splits: tuple[str, ...] = ("train", "valid")
    """splits that the weights depend on; most trainings choose an epoch by valid rows"""

    @classmethod
    def of_plugin(cls, spec: dict[str, Any]) -> Self:
        """Return what the spec of a backbone says that another package adds: its options, and `training`."""
        return cls({"options": {k: v for k, v in spec.items() if k != "training"}}, dict(spec.get("training") or {}))


class ModuleSpec(Record):
    """`spec` of a model whose backbone is the import path of a factory."""

    options: dict[str, Any]
    """arguments of the factory"""
    branches: dict[Name, tuple[str, ...]]
    """for a modality, the submodules whose output belongs to it"""
    shapes: dict[Name, Shape]
    """what the factory builds for; of a fixed shape, also modalities that the model does not take"""
    source: Digest
    """SHA-256 of the file that defines the factory"""
    inputs: tuple[str | dict[str, str], ...] | dict[str, str] = ()
    """arguments of the module's `forward`; empty: those of our contract"""
    output: str | int | None = None
    """what of that which `forward` returns is the output; null: the whole"""
    training: dict[str, Any] = Field(default_factory=dict)
    """settings with which it was trained; empty: it was trained elsewhere"""

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as JSON values; what a module under our contract lacks is left out."""
        plain = super().to_plain()
        return {
            key: value for key, value in plain.items() if key not in ("inputs", "output") or value not in (None, [])
        }

    def recorded(self) -> RecordedTraining:
        """Return how the model was trained."""
        branches = {m: names for m, names in self.branches.items() if m in self.shapes}
        model = {"options": self.options, "branches": branches, "inputs": self.inputs, "output": self.output}
        return RecordedTraining(model, self.training)


class LossWeights(Record):
    """Weights of the terms of a joint model's loss, and what the terms need."""

    alpha: float
    beta: float
    gamma: float
    temperature: float
    margin: float
    orthogonality: Literal["squared", "absolute"]
    decomposition_weight: float


class JointSpec(Record):
    """`spec` of a joint model: the parameters of `model.joint` that it was trained with."""

    hidden: Size
    embedding: Size
    property_dim: Size
    dropout: Share
    input_dropout: Share
    property_pathway: bool
    reconstruction: bool
    fusion: bool
    linear_share: Share
    splits: Splits
    losses: LossWeights
    training: dict[str, Any] = Field(default_factory=dict)
    """settings with which it was trained; empty: they were not recorded"""

    def recorded(self) -> RecordedTraining:
        """Return how the model was trained."""
        own = self.model_dump(exclude={"training"})
        return RecordedTraining({"joint": own}, self.training)


class LatticeSpec(Record):
    """`spec` of a lattice: the parameters of `model.lattice`. What is optional here, one in closed form may lack."""

    member: str | None = None
    """import path of the factory of the networks that the modules are; null: in closed form"""
    options: dict[str, Any] = Field(default_factory=dict)
    tags: Literal["all", "leave-one-out"] | Size | tuple[str, ...] = "all"
    splits: Splits
    folds: Size
    components: Size
    landmarks: Annotated[int, Field(ge=0)]
    kernel_components: Size
    lengths: tuple[float, ...]
    centre: Literal["median", "mean"]
    trust: float
    shapes: dict[Name, Shape] = Field(default_factory=dict)
    """what each modality of a lattice of networks is"""
    source: Digest | None = None
    """SHA-256 of the file that defines the factory of the networks"""
    training: dict[str, Any] = Field(default_factory=dict)
    """settings with which the networks were trained"""

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as JSON values; what is optional and not used is left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def recorded(self) -> RecordedTraining:
        """Return how the model was trained; modules in closed form need no settings of a training loop."""
        own = self.model_dump(exclude={"shapes", "source", "training"})
        splits = ("train",) if not self.member and self.splits == "train" else ("train", "valid")
        return RecordedTraining({"lattice": own}, self.training, splits)

    def without(self, gone: Collection[str]) -> Self:
        """Return the spec of the lattice without these modalities."""
        tags = self.tags
        if isinstance(tags, tuple):
            tags = tuple(tag for tag in tags if not set(tag.split("+")) & set(gone))
        return self.model_copy(update={"tags": tags, "shapes": {m: s for m, s in self.shapes.items() if m not in gone}})


class DataRecord(Record):
    """The data a model was made from: the FeatureSet's name and the digests of the files that were read."""

    name: str
    files: dict[RelativePath, str]


class ModelRecord(Record):
    """Everything `model.json` says."""

    format: Format = "urn:missing-by-design:model:v1"
    backbone: ComponentName
    spec: dict[str, object]
    """the backbone's parameters, as in params.yaml under model.BACKBONE; of a factory, :class:`ModuleSpec`"""
    task: Task
    classes: tuple[str, ...]
    label_range: tuple[float, float] | None
    modalities: dict[Name, int]
    """the modalities the model is built for, in order, with their dimensions: numbers at each position"""
    revoked: tuple[Name, ...] = ()
    """modalities deleted after training"""
    seed: str
    data: DataRecord
    guarantee: Guarantee = Guarantee()
    tensors: dict[str, TensorRecord]
    sha256: str
    """of model.safetensors"""

    def shapes_digest(self) -> str:
        """Return the SHA-256 of the canonical JSON of the names, shapes and types of all tensors."""
        return canonical_digest({name: [list(t.shape), t.dtype] for name, t in self.tensors.items()})

    @property
    def shapes(self) -> dict[str, Shape]:
        """What the model takes of each modality; a backbone whose spec has no `shapes` takes vectors."""
        listed: Any = self.spec.get("shapes") or {}
        return {
            m: Shape.model_validate(listed[m]) if m in listed else Shape.vector(dim)
            for m, dim in self.modalities.items()
        }

    @property
    def training_is_recorded(self) -> bool:
        """Whether the settings of the training are in `spec`, so that it can be repeated; not of imported weights.

        A lattice in closed form has none besides those of its backbone.
        """
        return bool(self.spec.get("training")) or (self.backbone == "lattice" and not self.spec.get("member"))

    @property
    def fitted_to(self) -> tuple[str, ...]:
        """Splits whose rows weights were fitted to: scores on them say little about new data."""
        return tuple(str(self.spec.get("splits", "train")).split("+"))

    @property
    def inputs(self) -> dict[str, int]:
        """The modalities that may be given; one that was revoked without being cut out is built in, but refused."""
        return {name: dim for name, dim in self.modalities.items() if name not in self.revoked}
