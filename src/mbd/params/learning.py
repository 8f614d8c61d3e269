"""Parameters of the model, its training and its evaluation."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.params.base import CorruptionSettings, Count, NonNegative, Positive, Seed, Settings
from mbd.registry import BACKBONES


class LossesSettings(Settings):
    """L = L_task + α·L_re + β·L_pe + γ·L_con, and what its terms need."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 1.0
    """α, weight of L_re (above 1 the generators memorise their rows)"""
    beta: NonNegative = 0.1
    """β, weight of L_pe"""
    gamma: NonNegative = 0.05
    """γ, weight of L_con"""
    temperature: Positive = 0.1
    """τ of the contrastive loss"""
    margin: NonNegative = 0.01
    """ε of L_app, the deviation of P^m from μ̄^m without penalty"""
    orthogonality: Literal["squared", "absolute"] = "squared"
    """form of L_or (the signed inner product of the paper has no lower bound)"""
    decomposition_weight: NonNegative = 20.0
    """weight of the decomposition's own reconstruction inside L_pe"""


class JointSettings(Settings):
    """The paper's backbone."""

    hidden: Count = 256
    """width of the hidden layers"""
    embedding: Count = 128
    """width of the fused embedding Z"""
    property_dim: Count = 128
    """d_p, width of P^m, Σ^m, μ^m and of the back-translation"""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """dropout of the hidden units of the fusion network"""
    input_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """dropout of the inputs of the fusion network"""
    property_pathway: bool = True
    """ablation: false trains without P^m, DE_m and L_pe"""
    reconstruction: bool = True
    """ablation: false trains without generators and L_re (missing inputs stay zero)"""
    fusion: bool = True
    """ablation: false replaces F by the mean of one linear map for each modality"""
    linear_share: Annotated[float, Field(ge=0, le=1)] = 0.7
    """share of the output that a linear map of the inputs has, fitted in closed form; 0: the networks alone"""
    splits: Literal["train", "train+valid"] = "train"
    """rows that the linear map is fitted to (scores on rows that it was fitted to say little about new data)"""
    losses: LossesSettings = LossesSettings()


def _import_path(path: str) -> str:
    if not BACKBONES.is_path(path):
        raise ValueError("give the import path of a factory, PACKAGE.MODULE:FACTORY")
    return path


class LatticeSettings(Settings):
    """The backbone for exact deletion: a module for every non-empty set of modalities."""

    member: Annotated[str, AfterValidator(_import_path)] | None = None
    """PACKAGE.MODULE:FACTORY of the networks that the modules are; null: in closed form"""
    options: dict[str, Any] = Field(default_factory=dict)
    """arguments of the factory"""
    tags: Literal["all", "leave-one-out"] | Count | tuple[str, ...] = "all"
    """sets of two and more modalities that get a module: all | leave-one-out | largest size | a list like [a+b, a+c]"""
    splits: Literal["train", "train+valid"] = "train"
    """rows that modules in closed form are trained on (they are chosen by folds, and need no valid rows)"""
    folds: Annotated[int, Field(ge=2)] = 5
    """folds of the cross-validation by which everything is chosen"""
    components: Count = 256
    """principal directions kept of each modality"""
    landmarks: Annotated[int, Field(ge=0)] = 64
    """landmarks of the kernel ridge, drawn at random, and up to 8 times as many where that pays; 0: ridge alone"""
    kernel_components: Count = 16
    """leading principal directions of each modality in which the landmarks lie"""
    lengths: tuple[Positive, ...] = (1.0, 2.0)
    """kernel lengths ℓ to choose from"""
    centre: Literal["median", "mean"] = "median"
    """regression: what of the out-of-fold errors becomes zero: median (for a small MAE) | mean (for a small MSE)"""
    trust: NonNegative = 0.05
    """κ, weight of differences in out-of-fold error when modules are averaged"""

    @model_validator(mode="after")
    def _networks_choose_by_valid_rows(self) -> Self:
        if self.member and self.splits != "train":
            raise ValueError(f"splits={self.splits}: networks choose their epoch by valid rows; set splits=train")
        return self


class ModelSettings(Settings):
    """The model."""

    backbone: Annotated[str, AfterValidator(BACKBONES.check)] = "joint"
    """joint (the paper's) | lattice (exact deletion) | PACKAGE.MODULE:FACTORY (your own), or one that a package adds"""
    joint: JointSettings = JointSettings()
    lattice: LatticeSettings = LatticeSettings()
    options: dict[str, Any] = Field(default_factory=dict)
    """arguments of the factory, or settings of a backbone that an installed package adds"""
    branches: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """PACKAGE.MODULE:FACTORY: for a modality, the submodules whose output belongs to it and is zero without it"""
    inputs: tuple[str | dict[str, str], ...] | dict[str, str] = ()
    """PACKAGE.MODULE:FACTORY of others: what forward takes, as [text, audio, audio_lengths] or {name: text, …}"""
    output: str | int | None = None
    """PACKAGE.MODULE:FACTORY of others: the key, attribute or position of the output, where forward returns several"""

    rename: dict[str, str | None] = Field(default_factory=dict)
    """mbd import: beginnings of names in the weights, and what they are in the module; {model.: ''} strips one"""

    @model_validator(mode="after")
    def _options_of_the_backbone(self) -> Self:
        BACKBONES.options(self.backbone, self.options, "model.options")
        for name in ("branches", "inputs", "output", "rename"):
            if getattr(self, name) not in ((), {}, None) and not BACKBONES.is_path(self.backbone):
                raise ValueError(f"only a model.backbone=PACKAGE.MODULE:FACTORY has {name}")
        return self


class TrainingSettings(Settings):
    """The training loop."""

    seed: Seed = 0
    """seed of every random stream of training"""
    processes: Count = 1
    """processes that train the networks of a lattice, several seeds or references (the bytes do not depend on it)"""
    epochs: Count = 25
    """passes over the train split"""
    batch_size: Count = 64
    """rows in a step"""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """sgd (with momentum) | adamw"""
    learning_rate: Positive = 0.02
    """rate of everything but P^m (with adamw, 1e-3 is usual)"""
    property_learning_rate: Positive = 1e-3
    """rate of P^m"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD momentum"""
    weight_decay: NonNegative = 5e-3
    """weight decay of matrices"""
    warmup_steps: Annotated[int, Field(ge=0)] = 50
    """steps of linear warm-up before the cosine"""
    clip_norm: Positive = 5.0
    """gradients are clipped to this norm"""
    modality_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """probability that a modality of a row is hidden in a step, so that the model learns missing inputs"""
    accumulation: Count = 1
    """PACKAGE.MODULE:FACTORY: parts in which a step takes its rows, one after the other, to save memory"""
    threads: Count = 1
    """CPU threads; another number rounds sums differently and gives other bytes"""
    snapshot_epochs: Count = 5
    """epochs between snapshots, from which a killed run continues"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if there is one"""
    mixed_precision: bool = False
    """bfloat16 products on a GPU; refused on a CPU"""


class EvaluationSettings(Settings):
    """What `mbd evaluate` measures."""

    missing_rates: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    """missing rates η"""
    seed: Seed = 0
    """seed of masks and of corruption"""
    figures: bool = True
    """also draw figures"""
    corruption: CorruptionSettings = CorruptionSettings()
