"""Parameters of the feature data: where it comes from and how it is split."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.params.base import Count, Name, Seed, Settings, Share
from mbd.params.corruption import CorruptionSettings
from mbd.registry import SOURCES

Task = Literal["regression", "classification"]


class SyntheticSettings(Settings):
    """Overrides of the synthetic preset."""

    dims: dict[Name, Count] | None = None
    """dimension of each modality; null: the preset's"""
    rows: dict[Name, Count] | None = None
    """rows of each split; null: the preset's"""
    classes: Annotated[int, Field(ge=0)] | None = None
    """number of classes, 0 for regression; null: the preset's"""


class MmsaSettings(Settings):
    """How an MMSA pickle is read."""

    labels: Literal["regression", "classification"] = "regression"
    """which labels to take"""


class CsdSettings(Settings):
    """Which computational sequences make up a CMU-MultimodalSDK data set (paths relative to source.path)."""

    sequences: dict[Name, str] | None = None
    """modality: .csd file; null: every other .csd file in the folder, named after it"""
    labels: str = "labels.csd"
    """.csd file with the labels, whose intervals are the utterances"""
    folds: str = "folds.json"
    """JSON with train, valid and test: lists of video ids"""


class IemocapSettings(Settings):
    """How a conversation-emotion tuple pickle is read."""

    layout: tuple[str, ...] | Literal["auto"] = "auto"
    """what stands at each place: ids, labels, train, valid, test, a modality, or _ to leave out; auto: recognised"""
    valid_share: Share = 0.1
    """share of the training rows that becomes the valid split, by dialogue, where the file has none"""


class MediaSettings(Settings):
    """Frozen encoders for raw media."""

    text_encoder: str = "bert-base-uncased"
    """local folder or hub id of the text encoder"""
    text_revision: str | None = None
    """full commit that a hub id is pinned to (required for one)"""
    visual_encoder: str = "microsoft/resnet-18"
    """local folder or hub id of the image encoder"""
    visual_revision: str | None = None
    """full commit that a hub id is pinned to (required for one)"""
    frames: Count = 8
    """frames sampled evenly from each video"""
    sample_rate: Annotated[int, Field(ge=8000, le=48000)] = 16000
    """Hz that audio is resampled to"""
    workers: Count | None = None
    """rows decoded and encoded side by side, whatever the number the vectors are the same; null: one for each core"""
    cache: str = "build/cache/media"
    """folder of vectors already computed, by digest of file and encoder"""


class SourceSettings(Settings):
    """Where features come from."""

    kind: Annotated[str, AfterValidator(SOURCES.check)] = "synthetic"
    """synthetic | npz | mmsa | csd | iemocap | media, or a source that an installed package adds"""
    path: str | None = None
    """file or folder to read (all kinds but synthetic)"""
    preset: Literal["mosi", "mosei", "iemocap"] = "mosi"
    """shape of the synthetic data"""
    modalities: tuple[Name, ...] | None = None
    """modalities to take; null: all that the source has"""
    task: Task | None = None
    """regression | classification, where the source does not say; null: classification if labels are integers"""
    group_pattern: str | None = r"^(.+?)(?:\$_\$|_)[^_$]+$"
    """what part of an id (the first parenthesis) names its video or speaker, if the source does not say; null: none"""
    synthetic: SyntheticSettings = SyntheticSettings()
    mmsa: MmsaSettings = MmsaSettings()
    csd: CsdSettings = CsdSettings()
    iemocap: IemocapSettings = IemocapSettings()
    media: MediaSettings = MediaSettings()
    options: dict[str, Any] = Field(default_factory=dict)
    """settings of a source that an installed package adds"""

    @model_validator(mode="after")
    def _options_of_the_source(self) -> Self:
        SOURCES.options(self.kind, self.options, "features.source.options")
        return self

    @model_validator(mode="after")
    def _path_where_one_is_read(self) -> Self:
        # The source is imported only where kind and path may not fit.
        if not self.path and self.kind != "synthetic" and SOURCES.get(self.kind).recognises:
            raise ValueError(f"source.kind={self.kind} reads a file: set features.source.path")
        if self.path and self.kind == "synthetic":
            recognised = [name for name in SOURCES.names() if _recognises(name, Path(self.path))]
            raise ValueError(
                "source.kind=synthetic reads no file: set features.source.kind to what "
                f"{self.path} is ({' or '.join(recognised) or 'npz, …'}), or features.source.path=null"
            )
        return self


def _recognises(kind: str, path: Path) -> bool:
    recognises = SOURCES.get(kind).recognises
    return recognises is not None and recognises(path)


class CalibrationSettings(Settings):
    """The rows on which deletion looks at the model; disjoint from all other splits."""

    size: Annotated[int, Field(ge=0)] = 5000
    """rows asked for (paper: 5,000); what was really used is recorded"""
    share: Share = 0.15
    """at most this share of the train rows is given up when the source has no calibration split"""


class DamageSettings(Settings):
    """A damaged twin of the data: of one split a share of the rows is damaged while reading.

    Raw frames, sound and text are damaged where the source has them (media), their feature-level equivalents otherwise.
    """

    split: Literal["valid", "test"] | None = None
    """split of which a share of the rows is damaged: raw where the source has raw media, else vectors; null: none"""
    corruption: CorruptionSettings = CorruptionSettings()

    def note(self, level: Literal["raw", "features"], rows: int) -> dict[str, Any]:
        """Return what the notes of a data set say of this damage, done to `rows` rows."""
        return {"split": self.split, "rows": rows, "level": level, **self.corruption.model_dump(mode="json")}


class FeaturesSettings(Settings):
    """Feature data."""

    seed: Seed = 0
    """seed of synthetic data, of the splits that are drawn here and of damage"""
    label_range: tuple[float, float] = (-3.0, 3.0)
    """regression labels outside are an error"""
    source: SourceSettings = SourceSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    damage: DamageSettings = DamageSettings()

    @model_validator(mode="after")
    def _range_in_order(self) -> Self:
        if self.label_range[0] >= self.label_range[1]:
            raise ValueError(f"label_range must be (low, high), got {self.label_range}")
        return self
