"""All parameters, loaded from defaults, a file and `--set`; their digest and their text."""

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path

import rfc8785
import yaml
from pydantic import BaseModel

from mbd.params.attacks import AttacksSettings
from mbd.params.base import Settings
from mbd.params.deletion import DeletionSettings
from mbd.params.features import FeaturesSettings
from mbd.params.learning import EvaluationSettings, ModelSettings, TrainingSettings
from mbd.params.operations import (
    CertificateSettings,
    MlflowSettings,
    MonitoringSettings,
    PurgeSettings,
    RegistrationSettings,
    RequestsSettings,
    ShreddingSettings,
    StoreSettings,
)
from mbd.params.platform import PlatformSettings
from mbd.params.serving import ServingSettings
from mbd.params.tree import read_tree, validate_tree
from mbd.records import describe_fields


class Params(Settings):
    """Everything that can be set."""

    features: FeaturesSettings = FeaturesSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    deletion: DeletionSettings = DeletionSettings()
    attacks: AttacksSettings = AttacksSettings()
    certificate: CertificateSettings = CertificateSettings()
    requests: RequestsSettings = RequestsSettings()
    registration: RegistrationSettings = RegistrationSettings()
    store: StoreSettings = StoreSettings()
    purge: PurgeSettings = PurgeSettings()
    mlflow: MlflowSettings = MlflowSettings()
    shredding: ShreddingSettings = ShreddingSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    serving: ServingSettings = ServingSettings()
    platform: PlatformSettings = PlatformSettings()


def load_params(file: Path | None = None, settings: Iterable[str] = ()) -> Params:
    """Return the defaults, overlaid with `file` (or `./params.yaml` if there is one) and `a.b=value` settings."""
    return validate_tree(*read_tree(file, settings), Params)


def params_digest(section: BaseModel) -> str:
    """Return the SHA-256 of the canonical JSON of `section`."""
    return hashlib.sha256(rfc8785.dumps(section.model_dump(mode="json"))).hexdigest()


def to_yaml(section: BaseModel, indent: int = 0) -> str:
    """Return `section` as YAML with each parameter's description as a comment."""
    lines, texts = [], describe_fields(type(section))
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Settings):
            lines += [f"{'  ' * indent}{name}:", to_yaml(value, indent + 1).rstrip("\n")]
            continue
        plain = section.model_dump(mode="json", include={name})[name]
        text = (
            yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=math.inf)
            .removesuffix("...\n")
            .strip()
        )
        comment = f"  # {texts[name]}" if name in texts else ""
        lines.append(f"{'  ' * indent}{name}: {text}{comment}")
    return "\n".join(lines) + "\n"
