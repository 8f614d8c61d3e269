"""The arguments of a pipeline from a command line: parameters as one text, and the others by their names."""

import json
from collections.abc import Sequence
from typing import Any

from mbd.errors import UsageError
from mbd.kubeflow.common import write_params
from mbd.params import Params
from mbd.params.deletion import refuse_weak_audit
from pipelines.compiling import build

AUDITING = ("delete", "reaudit")
"""pipelines whose attacks a certificate rests on"""


def given(
    name: str, params: Params, modalities: Sequence[str], subjects: Sequence[str], arguments: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of the pipeline `name`; one that it does not have, or lacks, is an error."""
    wanted = build(name, params.platform).component_spec.inputs or {}
    if name in AUDITING:
        refuse_weak_audit(params.attacks)
    values: dict[str, Any] = {"params": write_params(params)}
    if "modalities" in wanted or (modalities and "modality" not in wanted):
        values["modalities"] = list(modalities) or [params.requests.modality]
    if "modality" in wanted:
        values["modality"] = _only(modalities, params.requests.modality)
    if subjects:
        values["subjects"] = list(subjects)
    if "model" in wanted:
        values["model"] = params.certificate.model
    values |= dict(_parsed(argument) for argument in arguments)
    for key in values:
        if key not in wanted:
            raise UsageError(f"the pipeline {name} takes no {key}", key=key, hint=f"it takes {', '.join(wanted)}")
    for key, entry in wanted.items():
        if key not in values and not entry.optional:
            raise UsageError(f"the pipeline {name} needs {key}", key=key, hint=f"give --argument {key}=…")
    return values


def _only(modalities: Sequence[str], otherwise: str) -> str:
    if len(modalities) > 1:
        raise UsageError(
            "this pipeline takes one modality",
            key="--modality",
            value=", ".join(modalities),
            hint="name one of them: a certificate that covers several is found by any",
        )
    return modalities[0] if modalities else otherwise


def _parsed(argument: str) -> tuple[str, Any]:
    key, equals, text = argument.partition("=")
    if not equals:
        raise UsageError("an argument is KEY=JSON", key="--argument", value=argument, hint="for example seeds=[0,1]")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text
