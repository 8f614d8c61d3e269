"""`manifest.json` of a FeatureSet, and the location by which Kubeflow steps pass a FeatureSet on."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from mbd.records import Digest, Name, Record, RelativePath

MANIFEST = "manifest.json"
Task = Literal["regression", "classification"]
_AXES = {"vector": 1, "sequence": 2, "image": 3, "tokens": 1}


def lengths_of(modality: str) -> str:
    """Return the name under which the lengths of a modality are passed beside it."""
    return f"{modality}_lengths"


class Shape(Record):
    """What one row of a modality is."""

    kind: Literal["vector", "sequence", "image", "tokens"]
    size: tuple[Annotated[int, Field(gt=0)], ...]
    """d of a vector; T, d of a sequence; channels, height, width of an image; T of token ids"""
    vocabulary: int | None = None
    """number of different token ids"""
    dtype: Literal["float32", "float16", "uint8", "int64"] = "float32"
    """as stored; a model is given token ids as int64, and everything else as float32"""

    @model_validator(mode="before")
    @classmethod
    def _whole_token_ids(cls, given: Any) -> Any:  # noqa: ANN401 -- not validated yet
        return {"dtype": "int64", **given} if isinstance(given, dict) and given.get("kind") == "tokens" else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.size) != _AXES[self.kind]:
            raise ValueError(f"a {self.kind} has {_AXES[self.kind]} axes, not {len(self.size)}")
        if len({self.kind == "tokens", self.vocabulary is not None, self.dtype == "int64"}) > 1:
            raise ValueError("token ids, and nothing else, have a vocabulary and are int64")
        return self

    def __str__(self) -> str:
        """Return it for a message: `vector 768`, `sequence 50 × 74`."""
        return f"{self.kind} {' × '.join(map(str, self.size))}"

    def __index__(self) -> int:
        """Return the width of a vector, so that it can be used as a number: `nn.Linear(shape, 64)`."""
        if self.kind != "vector":
            raise TypeError(f"a {self} is no number; take its width, size or vocabulary")
        return self.width

    @classmethod
    def vector(cls, width: int) -> Self:
        """Return the shape of a vector."""
        return cls(kind="vector", size=(width,))

    @property
    def has_lengths(self) -> bool:
        """Whether rows differ in length, and are filled up with zeros to T."""
        return self.kind in ("sequence", "tokens")

    @property
    def width(self) -> int:
        """How many numbers there are at each position: d, or channels; 1 for a token id."""
        return 1 if self.kind == "tokens" else self.size[0] if self.kind == "image" else self.size[-1]


class VectorShape(int):
    """The shape of a vector as a factory gets it: its width, with the attributes of a :class:`Shape`."""

    kind: Literal["vector"] = "vector"
    vocabulary: None = None
    has_lengths: Literal[False] = False

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return int(self)

    @property
    def size(self) -> tuple[int]:
        """The same as a tuple."""
        return (int(self),)

    def __str__(self) -> str:
        """Return it for a message: `vector 768`."""
        return f"vector {int(self)}"


StoredShape = Annotated[
    Shape,
    BeforeValidator(lambda stored: {"kind": "vector", "size": (stored,)} if isinstance(stored, int) else stored),
    PlainSerializer(
        lambda shape: shape.width if shape == Shape.vector(shape.width) else shape, return_type=int | Shape
    ),
]
"""a shape, of which a vector of float32 is stored as its width alone"""


class SplitEntry(Record):
    """Size of a split, and the SHA-256 of its files by name."""

    rows: int
    groups: int
    files: dict[RelativePath, str]


class CalibrationEntry(Record):
    """How the calibration split was made."""

    requested: int
    used: int
    carved_from: str | None


class Manifest(Record):
    """The contents of `manifest.json`."""

    format: Literal["urn:missing-by-design:feature-set:v1"]
    name: str
    task: Task
    classes: tuple[str, ...]
    label_range: tuple[float, float] | None
    modalities: dict[Name, StoredShape]
    splits: dict[Name, SplitEntry]
    calibration: CalibrationEntry
    provenance: dict[str, Any]


class FeatureLocation(Record):
    """Where a FeatureSet comes from, and what it must be."""

    format: Literal["urn:missing-by-design:feature-reference:v1"] = "urn:missing-by-design:feature-reference:v1"
    name: str
    digest: Digest
    """SHA-256 of the canonical list of its files' digests"""
    repository: str | None
    """DVC repository; null: made from features.source of the parameters"""
    commit: str | None
    path: str | None
    remote: str | None
    left_out: tuple[Digest, ...] = ()
    """certificates of persons' deletions whose recordings are left out before a step gets the data"""
    without: tuple[Name, ...] = ()
    """modalities of which no file is read when recordings are left out"""
