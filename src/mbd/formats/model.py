"""`model.json`: what a model is, what it was made from, and what each tensor could see.

Deletion, verification and reports read this and nothing else. For every tensor:

- `sees`: the modalities whose data could have had any influence on its values;
- `belongs_to`: the modality for which alone the tensor exists (it goes when that modality is revoked), or null;
- `columns`: for a tensor that multiplies raw input, which input columns read which modality.
"""

from typing import Annotated, Literal

from pydantic import Field

from mbd.formats.guarantee import Guarantee
from mbd.names import Name, RelativePath
from mbd.params.features import Task
from mbd.records import Record

ComponentName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]
"""a backbone or a deletion method: a built-in one, or one of a plug-in, whose code verification does not need"""
Format = Literal["urn:missing-by-design:model:v1"]


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


class DataRecord(Record):
    """The data a model was made from: the FeatureSet's name and the digests of the files that were read."""

    name: str
    files: dict[RelativePath, str]


class ModelRecord(Record):
    """Everything `model.json` says."""

    format: Format = "urn:missing-by-design:model:v1"
    backbone: ComponentName
    spec: dict[str, object]
    """the backbone's parameters, as in params.yaml under model.BACKBONE"""
    task: Task
    classes: tuple[str, ...]
    label_range: tuple[float, float] | None
    modalities: dict[Name, int]
    """the modalities the model is built for, with their dimensions, in order"""
    revoked: tuple[Name, ...] = ()
    """modalities deleted after training"""
    seed: str
    data: DataRecord
    guarantee: Guarantee = Guarantee()
    tensors: dict[str, TensorRecord]
    sha256: str
    """of model.safetensors"""

    @property
    def inputs(self) -> dict[str, int]:
        """The modalities that may be given; one that was revoked without being cut out is built in, but refused."""
        return {name: dim for name, dim in self.modalities.items() if name not in self.revoked}
