"""Parameters of a deletion, with the paper's operating point as defaults, and of the attacks and the gate after it."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.errors import UsageError
from mbd.formats.predicate import MOST_BITS
from mbd.formats.strength import weak_parameters
from mbd.params.base import Count, NonNegative, Positive, Seed, Settings, Share
from mbd.records import Name
from mbd.registry import ATTACKS, METHODS


class SurgerySettings(Settings):
    """Algorithm 1 and the structural cut."""

    order: Literal["saliency", "importance"] = "saliency"
    """order of the candidates: most salient first | least important first (as printed in the paper)"""
    threshold: Literal["quantile", "absolute"] = "quantile"
    """whether the two thresholds are quantiles or absolute values"""
    saliency_threshold: NonNegative = 0.1
    """η_s when thresholds are absolute"""
    importance_threshold: NonNegative = 0.05
    """η_L when thresholds are absolute"""
    saliency_quantile: Share = 0.9
    """candidates lie above this quantile of the positive saliencies"""
    importance_quantile: Share = 1.0
    """candidates lie below this quantile of importance"""
    edit: Literal["zero", "noise"] = "zero"
    """edit of a selected parameter"""
    cut: bool = True
    """also remove everything private to the modality and every input column that reads it"""
    budget: Annotated[float, Field(gt=0, le=0.05)] = 0.03
    """r, the share of all parameters that may be edited (at most 0.05)"""
    importance: Literal["swiftprune", "gauss_newton"] = "swiftprune"
    """importance used for order and threshold"""
    chi_max: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """χ_max, clip of the activation ratio"""
    mantissa_bits: Annotated[int, Field(ge=1, le=MOST_BITS)] | None = None
    """bits of each released number's mantissa that are kept, the rest being 0; null: as few as the loss allows"""


class CertifiedSettings(Settings):
    """Clip, noise, fine-tune."""

    radius: Positive = 1.0
    """C, the norm to which all shared weights are clipped (sensitivity 2C)"""
    finetune_epochs: Annotated[int, Field(ge=0)] | Literal["auto"] | None = None
    """epochs of fine-tuning; auto: until the error on valid rows has stopped falling; null: joint 5, a module auto"""
    escrow: str | None = None
    """file (mode 0600) that keeps the noise keys for an auditor; null: keys are destroyed"""


class DeletionSettings(Settings):
    """A deletion."""

    method: Annotated[str, AfterValidator(METHODS.check)] = "surgery"
    """surgery | certified (neither for a lattice) | exact, or a method that an installed package adds"""
    epsilon: Positive = 1.0
    """ε_mod, the privacy budget of one deletion"""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ_mod"""
    budget_limit: Positive = 8.0
    """largest cumulative ε of a lineage; further deletions are refused"""
    ledgers: str = "build/ledgers"
    """folder with the budget ledger of each lineage and the count of its audits; all deletions must use the same one"""
    noise_seed: Seed | None = None
    """studies only: reproducible noise; no guarantee and no certificate"""
    surgery: SurgerySettings = SurgerySettings()
    certified: CertifiedSettings = CertifiedSettings()
    options: dict[str, Any] = Field(default_factory=dict)
    """settings of a method that an installed package adds"""

    @model_validator(mode="after")
    def _options_of_the_method(self) -> Self:
        METHODS.options(self.method, self.options, "deletion.options")
        return self


WeightChange = Literal["int8", "pruned"]


class AttacksSettings(Settings):
    """The attack suite and the thresholds of the gate."""

    seed: Seed = 0
    """seed of the fit and score halves, the probes and the bootstrap"""
    splits: Annotated[tuple[Name, ...], Field(min_length=1)] = ("test",)
    """splits whose rows are attacked; the models must not be trained on them"""
    rows: Count = 1000
    """largest number of attacked rows"""
    least_rows: Count = 20
    """fewest scored rows of an audit; with fewer, intervals are so wide that everything passes"""
    least_power: Annotated[float, Field(ge=0.5, lt=1)] = 0.8
    """probability with which some attack must find a leak as large as the model before has; else nothing passes"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence of every interval"""
    resamples: Count = 1000
    """resamples of the bootstrap"""
    relearn_rows: Annotated[tuple[Count, ...], Field(min_length=1)] = (8, 32, 128)
    """numbers of rows with the modality from which `relearn` and `reattach` teach it again"""
    variants: tuple[WeightChange, ...] = ("int8", "pruned")
    """transformations of the models after which attacks run again, but `reattach` and `copies`"""
    pruned_share: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """share of each weight tensor that pruning sets to zero, the smallest values first"""
    tolerance: NonNegative = 0.03
    """largest difference between an attack on the deleted model and on the reference, at the given confidence"""
    utility_margin: NonNegative = 3.0
    """largest loss of accuracy on the retained modalities, in points, against the reference and the full model"""
    correlation_margin: NonNegative = 0.1
    """largest loss of Pearson's r (regression), likewise"""
    also: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """further attacks, from installed packages: {name: options}; the built-in ones always run"""
    figures: bool = True
    """also draw figures"""

    @model_validator(mode="after")
    def _attacks_that_are_installed(self) -> Self:
        for name, options in self.also.items():
            if name in ATTACKS.builtin:
                raise ValueError(f"the attack {name} is built in and always runs: leave it out of attacks.also")
            ATTACKS.options(name, options, f"attacks.also.{name}")
        return self


def refuse_weak_audit(settings: AttacksSettings) -> None:
    """Refuse parameters with which an audit is too weak for a certificate, whatever it finds."""
    for shortfall in weak_parameters(settings.model_dump()):
        raise UsageError(shortfall.problem, key=shortfall.key, value=shortfall.value, hint=shortfall.hint)
