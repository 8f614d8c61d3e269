"""All parameters, loaded from defaults, a file and `--set`; their digest and their text; and what they mean elsewhere.

In a container, paths that are not set lead to where the platform mounts things. A volume or a secret that `platform`
names has a folder there (`platform.state_path` …). :data:`MOUNTED` says which parameters lead into which of them; what
has been set to something else stays.
"""

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from mbd.files import canonical_digest
from mbd.params.base import Settings
from mbd.params.deletion import AttacksSettings, DeletionSettings
from mbd.params.features import FeaturesSettings
from mbd.params.learning import EvaluationSettings, ModelSettings, TrainingSettings
from mbd.params.operations import (
    CertificateSettings,
    MonitoringSettings,
    PurgeSettings,
    ShreddingSettings,
    StoreSettings,
)
from mbd.params.platform import (
    MlflowSettings,
    PlatformSettings,
    RegistrationSettings,
    RequestsSettings,
    ServingSettings,
)
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


def load_params(file: Path | None = None, settings: Iterable[str] | Mapping[str, object] = ()) -> Params:
    """Return the defaults, overlaid with `file` (or `./params.yaml` if there is one) and `a.b=value` settings."""
    return validate_tree(*read_tree(file, settings), Params)


def params_digest(section: BaseModel) -> str:
    """Return the SHA-256 of the canonical JSON of `section`."""
    return canonical_digest(section.model_dump(mode="json"))


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


MOUNTED = {
    "state_claim": {
        "deletion.ledgers": "{state_path}",
        "certificate.private": "{state_path}/private",
        "purge.tombstones": "{state_path}/tombstones",
        "features.source.media.cache": "{state_path}/media",
    },
    "trust_config": {"certificate.trust": "{trust_path}/trust.json"},
    "keys_secret": {
        "certificate.signers": "file:{keys_path}/signer.pem",
        "certificate.log_signer": "file:{keys_path}/log.pem",
    },
    "lineage_secret": {"certificate.lineage_key": "{lineage_path}/lineage.key"},
    "data_keys_claim": {"shredding.keys": "{data_keys_path}"},
    "wrapper_secret": {"shredding.wrapper": "file:{wrapper_path}/shredding.kek"},
}
"""what `platform` names: {parameter: where it leads, if that is mounted}"""
_PLAIN = "features.source.media.cache"
"""plain vectors, which are kept nowhere with crypto-shredding"""


def in_container(params: Params) -> Params:
    """Return the parameters with every default path to something mounted as it is in a container."""
    defaults, paths, changes = Params(), params.platform.model_dump(), dict[str, Any]()
    for source, parameters in MOUNTED.items():
        for key, path in parameters.items():
            default, kept = attrgetter(key)(defaults), key == _PLAIN and params.shredding.enabled
            if paths[source] and attrgetter(key)(params) == default and not kept:
                value = path.format(**paths)
                changes[key] = (value,) if isinstance(default, tuple) else value
    return params.having(changes)


def on_one_machine(params: Params) -> Params:
    """Return the parameters without what is mounted on a cluster: every path is the one of this machine."""
    return params.having({f"platform.{source}": None for source in MOUNTED})
