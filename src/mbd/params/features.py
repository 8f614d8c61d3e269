"""Parameters of the feature data: where it comes from and how it is split."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.formats.features import Task
from mbd.params.base import CorruptionSettings, Count, Seed, Settings, Share
from mbd.records import Name
from mbd.registry import SOURCES


class SyntheticSettings(Settings):
    """Overrides of the synthetic preset."""

    dims: dict[Name, Count] | None = None
    """dimension of each modality; null: the preset's"""
    frames: dict[Name, Count] | None = None
    """longest sequence of each modality of the preset `sequences`; null: the preset's"""
    rows: dict[Name, Count] | None = None
    """rows of each split; null: the preset's"""
    classes: Annotated[int, Field(ge=0)] | None = None
    """number of classes, 0 for regression; null: the preset's"""
    skew: Annotated[float, Field(ge=0)] = 0.0
    """how much rarer each class is than the one before it; 0: all are equally frequent"""


class MmsaSettings(Settings):
    """How an MMSA pickle is read."""

    labels: Task = "regression"
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
    """content of each place: ids, labels, train, valid, test, a modality, or _ to leave out; auto: recognised"""
    valid_share: Share = 0.1
    """share of the training rows that becomes the valid split, by dialogue, where the file has none"""


class TableSettings(Settings):
    """Which columns of a table are what."""

    id: str = "id"
    """column with the id of each row; rows of a table without it are numbered"""
    label: str = "label"
    """column with the label: a score, a class number, or the name of a class"""
    split: str = "split"
    """column with train, valid or test; in a table without it, splits are drawn by group"""
    group: str = "group"
    """column with the speaker or video; in a table without it, groups are taken from the ids"""
    modalities: dict[Name, str] | None = None
    """modality: a column of lists, or what columns such as voice_0, voice_1 begin with; null: all of them"""
    empty: Literal["missing", "refuse"] = "missing"
    """an empty cell among the numbers of a modality: missing (its row lacks the modality) | refuse (an error)"""
    valid_share: Share = 0.1
    """share of the training rows that becomes the valid split, by group, where the table has none"""
    test_share: Share = 0.2
    """share of the rows that becomes the test split, by group, where the table has no splits"""


class MediaSettings(Settings):
    """Frozen encoders for raw media."""

    text_encoder: str = "bert-base-uncased"
    """local folder or hub id of the text encoder"""
    text_revision: str | None = None
    """full commit of a hub id (required for one)"""
    visual_encoder: str = "microsoft/resnet-18"
    """local folder or hub id of the image encoder"""
    visual_revision: str | None = None
    """full commit of a hub id (required for one)"""
    frames: Count = 8
    """frames sampled evenly from each video"""
    sample_rate: Annotated[int, Field(ge=8000, le=48000)] = 16000
    """Hz that audio is resampled to"""
    workers: Count | None = None
    """rows decoded and encoded in parallel (the vectors do not depend on it); null: one for each core"""
    cache: str = "build/cache/media"
    """folder of vectors already computed, by digest of file and encoder"""


class SourceSettings(Settings):
    """Where features come from."""

    kind: Annotated[str, AfterValidator(SOURCES.check)] | None = None
    """synthetic | npz | table | mmsa | csd | iemocap | media, or a source of a plug-in; null: as the path looks"""
    path: str | None = None
    """file or folder to read; null: synthetic data"""
    preset: Literal["mosi", "mosei", "iemocap", "sequences"] = "mosi"
    """shape of the synthetic data; sequences: frames that vary in time, and few of them show the sentiment"""
    modalities: tuple[Name, ...] | None = None
    """modalities to take; null: all that the source has"""
    sequences: Literal["keep", "mean"] | None = None
    """keep | mean: what becomes of the frames of a sequence (modules take them); null: keep, of mmsa and media mean"""
    task: Task | None = None
    """regression | classification; null: as the source says, else classification if labels are integers"""
    group_pattern: str | None = r"^(.+?)(?:\$_\$|_)[^_$]+$"
    """regular expression whose first group is the video or speaker of an id, for sources without groups; null: none"""
    synthetic: SyntheticSettings = SyntheticSettings()
    table: TableSettings = TableSettings()
    mmsa: MmsaSettings = MmsaSettings()
    csd: CsdSettings = CsdSettings()
    iemocap: IemocapSettings = IemocapSettings()
    media: MediaSettings = MediaSettings()
    options: dict[str, Any] = Field(default_factory=dict)
    """settings of a source that an installed package adds"""

    @model_validator(mode="after")
    def _options_of_the_source(self) -> Self:
        SOURCES.options(self.kind or "synthetic", self.options, "features.source.options")
        return self

    @model_validator(mode="after")
    def _path_where_one_is_read(self) -> Self:
        # The source is imported only where kind and path may not fit.
        if not self.path and self.kind not in (None, "synthetic") and SOURCES.get(self.kind).recognises:
            raise ValueError(f"source.kind={self.kind} reads a file: set features.source.path")
        if self.path and self.kind == "synthetic":
            raise ValueError(
                f"source.kind=synthetic reads no file: leave features.source.kind unset to read {self.path}, or set "
                "features.source.path=null"
            )
        return self


class CalibrationSettings(Settings):
    """The rows from which deletion computes saliency and importance; disjoint from all other splits."""

    size: Annotated[int, Field(ge=0)] = 5000
    """rows requested (paper: 5,000); the manifest records how many were used"""
    share: Share = 0.15
    """largest share of the train rows that becomes the calibration split of a source without one"""


class DamageSettings(Settings):
    """A damaged copy of the data: a share of the rows of one split is damaged while reading.

    Raw frames, sound and text are damaged where the source has them (media), their feature-level equivalents otherwise.
    """

    split: Literal["valid", "test"] | None = None
    """split in which a share of the rows is damaged: raw media where the source has them, else vectors; null: none"""
    corruption: CorruptionSettings = CorruptionSettings()

    def note(self, level: Literal["raw", "features"], rows: int) -> dict[str, Any]:
        """Return the entry of the notes about this damage to `rows` rows."""
        return {"split": self.split, "rows": rows, "level": level, **self.corruption.model_dump(mode="json")}


class FeaturesSettings(Settings):
    """Feature data."""

    seed: Seed = 0
    """seed of synthetic data, drawn splits and damage"""
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
