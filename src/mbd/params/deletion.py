"""Parameters of a deletion, with the paper's operating point as defaults."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.formats.predicate import MOST_BITS
from mbd.params.base import NonNegative, Positive, Seed, Settings, Share
from mbd.registry import METHODS


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
