"""From defaults, a file and `--set` to one validated set of parameters, its digest and its text."""

import difflib
import hashlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import rfc8785
import yaml
from pydantic import BaseModel, ValidationError

from mbd.errors import UsageError
from mbd.params.attacks import AttacksSettings
from mbd.params.base import Settings
from mbd.params.certificate import CertificateSettings
from mbd.params.deletion import DeletionSettings
from mbd.params.features import FeaturesSettings
from mbd.params.learning import EvaluationSettings, ModelSettings, TrainingSettings
from mbd.params.operations import (
    MlflowSettings,
    MonitoringSettings,
    PurgeSettings,
    RegistrationSettings,
    RequestsSettings,
    StoreSettings,
)
from mbd.params.platform import PlatformSettings
from mbd.params.serving import ServingSettings
from mbd.params.shredding import ShreddingSettings

DEFAULT_FILE = Path("params.yaml")
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""ValueError: bytes that are no text, or a date such as 2026-99-99; RecursionError: a thousand brackets"""


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
    if file is None and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    tree = _read(file) if file else {}
    for setting in settings:
        _apply(tree, setting)
    _reject_unknown_keys(tree, file)
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise _usage_error(error, file) from error
    except UsageError as error:  # from a registry: it has the key
        error.file = error.file or file
        raise


def params_digest(section: BaseModel) -> str:
    """Return the SHA-256 of the canonical JSON of `section`."""
    return hashlib.sha256(rfc8785.dumps(section.model_dump(mode="json"))).hexdigest()


def known_keys(section: type[BaseModel] = Params, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every parameter and section."""
    for name, field in section.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from known_keys(field.annotation, f"{prefix}{name}.")


def to_yaml(section: BaseModel, indent: int = 0) -> str:
    """Return `section` as YAML with each parameter's description as a comment."""
    lines = []
    for name, field in type(section).model_fields.items():
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
        comment = f"  # {field.description}" if field.description else ""
        lines.append(f"{'  ' * indent}{name}: {text}{comment}")
    return "\n".join(lines) + "\n"


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the parameters cannot be read: {error.strerror}",
            file=file,
            hint="give another file with --params",
        ) from error
    except _NOT_YAML as error:
        raise UsageError(f"the parameters are not YAML: {error}", file=file) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError("the parameters must be a mapping of sections", file=file, value=type(tree).__name__)
    return tree


def _apply(tree: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UsageError("a setting has the form a.b=value", key="--set", value=setting)
    try:
        value = yaml.safe_load(text)
    except _NOT_YAML as error:
        raise UsageError(f"the value is not YAML: {error}", key=key, value=text) from error
    *sections, last = key.split(".")
    for section in sections:
        below = tree.setdefault(section, {})
        if not isinstance(below, dict):
            raise UsageError(f"{section} is not a section", key=key, hint=_nearest(key))
        tree = below
    tree[last] = value


def _reject_unknown_keys(tree: dict[str, Any], file: Path | None) -> None:
    known = set(known_keys())
    sections = {key.rpartition(".")[0] for key in known}

    def walk(branch: dict[str, Any], prefix: str) -> None:
        for name, value in branch.items():
            key = f"{prefix}{name}"
            if key not in known:
                raise UsageError("there is no such parameter", file=file, key=key, hint=_nearest(key))
            if isinstance(value, dict) and key in sections:
                walk(value, f"{key}.")

    walk(tree, "")


def _nearest(key: str) -> str:
    known = list(known_keys())
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    last = key.rpartition(".")[2]
    close += [k for k in known if k.rpartition(".")[2] == last][:1]
    return f"did you mean {close[0]}?" if close else "`mbd params` lists all of them"


def _usage_error(error: ValidationError, file: Path | None) -> UsageError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    value = first["input"]
    return UsageError(
        first["msg"].removeprefix("Value error, "),
        file=file,
        key=key,
        value=None if isinstance(value, dict) else repr(value),
        hint=f"`mbd params` prints every parameter with its meaning ({error.error_count()} to correct)",
    )
