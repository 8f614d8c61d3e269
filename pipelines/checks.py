"""What would make a run fail on the cluster, as far as it can be seen from here: parameters and the store."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mbd.errors import MbdError
from mbd.history.replay import read_history
from mbd.params import Params
from mbd.storage import open_store
from mbd.trust.trust_file import read_trust
from pipelines.arguments import AUDITING


def find_problems(name: str, params: Params, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is missing or wrong for a run of the pipeline `name` with these arguments."""
    platform = params.platform
    for key in ("image", "gpu_image") if platform.gpu.limit else ("image",):
        if "@sha256:" not in getattr(platform, key):
            yield f"platform.{key}={getattr(platform, key)} is not pinned by digest (NAME@sha256:…)"
    if params.store.url.startswith("file://"):
        yield f"store.url={params.store.url} is a folder, which a pod has only if a volume is mounted there"
    elif not platform.secrets:
        yield "platform.secrets names no credentials, so the store is reached only if the service account may"
    if name != "sweep" and platform.keys_secret is None:
        yield "platform.keys_secret names no secret, so nothing can be signed"
    if name != "sweep" and platform.trust_config is None:
        yield "platform.trust_config names no config map, so only tasks that sign have the trust file"
    if params.deletion.method == "certified" and platform.state_claim is None:
        yield "platform.state_claim names no claim, so the budget of certified deletions is lost with the pod"
    if params.shredding.enabled and platform.data_keys_claim is None:
        yield "platform.data_keys_claim names no claim, and shredding.enabled needs one"
    if name in AUDITING:
        yield from _compare_with_log(params, arguments)


def _compare_with_log(params: Params, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the log says against the model or the modalities that are named."""
    model = arguments.get("model") or params.certificate.model
    try:
        trust = read_trust(Path(params.certificate.trust))
        history = read_history(open_store(params.store.url, params.store), trust).model(model)
    except MbdError as error:
        yield f"model and modalities were not compared with the store: {error.problem}"
        return
    if history.start is None:
        yield f"the log has no release of {model}: run the pipeline train, or `mbd register`"
    elif "modality" in arguments:  # of an audit
        if arguments["modality"] not in history.revoked:
            yield f"{arguments['modality']} was not deleted from {model}; {', '.join(history.revoked) or 'nothing'} was"
    elif unknown := [m for m in arguments["modalities"] if m not in history.start.inputs]:
        yield f"{model} does not take {', '.join(unknown)}; it takes {', '.join(history.start.inputs)}"
