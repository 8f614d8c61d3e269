"""Where and how a task runs, from the section `platform` of the parameters: image, resources, GPU, secrets, retries.

Nothing here depends on a task's work. A task is done, not remembered: only one that is placed with `cached=True` may be
answered from Kubeflow's cache.
"""

import re
from enum import Enum
from typing import Any

from kfp import kubernetes

from mbd.errors import UsageError
from mbd.params.platform import PlatformSettings
from mbd.remote_errors import PATIENCE

NON_ROOT = {"run_as_user": 10001, "run_as_group": 10001, "run_as_non_root": True}
_PLAINTEXT, _TEMPORARY = "plaintext", "tmp"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Need(Enum):
    """What a task needs besides its image."""

    GPU = "a GPU, if there is one"
    SIGNING_KEYS = "the signing keys, and the lineage key"
    LINEAGE_KEY = "the lineage key, by which persons and deletion records are found"
    STATE = "the volume for what outlives a task (platform.state_claim)"
    DATA = "models or feature data: that volume, keys of what is encrypted, and memory for its plain form"


def place(
    platform: PlatformSettings,
    task: Any,  # noqa: ANN401 -- kfp has no types
    *needs: Need,
    cached: bool = False,
    retried: bool = True,
) -> Any:  # noqa: ANN401
    """Set image, resources, volumes and retries of a task."""
    on_gpu = Need.GPU in needs and platform.gpu.limit > 0
    image = platform.gpu_image if on_gpu else platform.image
    task.set_container_image(image)
    if pinned := image.partition("@")[2]:
        task.set_env_variable("MBD_IMAGE_DIGEST", pinned)
    task.set_env_variable(PATIENCE, f"{platform.patience_seconds:g}")
    task.set_caching_options(enable_caching=cached)
    task.set_cpu_request(platform.cpu)
    task.set_memory_request(platform.memory).set_memory_limit(platform.memory)
    kubernetes.set_timeout(task, platform.timeout_seconds)
    kubernetes.set_security_context(task, **NON_ROOT)
    if retried:
        _retry(task, platform)
    _check_volumes(platform)
    # A volume, so that an administrator can make the root filesystem read-only.
    kubernetes.empty_dir_mount(task, volume_name=_TEMPORARY, mount_path="/tmp")  # noqa: S108
    for secret, keys in platform.secrets.items():
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=keys)
    if platform.trust_config:
        kubernetes.use_config_map_as_volume(task, config_map_name=platform.trust_config, mount_path=platform.trust_path)
    signs, named = Need.SIGNING_KEYS in needs, Need.LINEAGE_KEY in needs
    if platform.keys_secret and (signs or (named and not platform.lineage_secret)):
        kubernetes.use_secret_as_volume(task, secret_name=platform.keys_secret, mount_path=platform.keys_path)
    if platform.lineage_secret and (signs or named):
        kubernetes.use_secret_as_volume(task, secret_name=platform.lineage_secret, mount_path=platform.lineage_path)
    if platform.state_claim and not {Need.STATE, Need.DATA}.isdisjoint(needs):
        kubernetes.mount_pvc(task, pvc_name=platform.state_claim, mount_path=platform.state_path)
        task.set_env_variable("XDG_CACHE_HOME", f"{platform.state_path}/cache")  # what is remembered of the log
    if Need.DATA in needs and platform.data_keys_claim:
        _let_decrypt(task, platform)
    if on_gpu:
        _ask_for_gpu(task, platform)
    return task


def _retry(task: Any, platform: PlatformSettings) -> None:  # noqa: ANN401
    """Retry a task that failed.

    Argo counts `backoff_max_duration` from the first attempt: it starts no retry after it, and ends one that runs then.
    kfp's default is an hour. So it has to cover all attempts and the waits between them.
    """
    count, wait = platform.retries.count, platform.retries.backoff_seconds
    if count:
        longest = (count + 1) * platform.timeout_seconds + wait * (2**count - 1)
        task.set_retry(
            count, backoff_duration=f"{wait:g}s", backoff_factor=2.0, backoff_max_duration=f"{round(longest)}s"
        )


def _check_volumes(platform: PlatformSettings) -> None:
    """Refuse names that Kubeflow makes invalid volumes of: a volume has the name of its secret, config map or claim."""
    taken = {_PLAINTEXT: "a volume of every task", _TEMPORARY: "a volume of every task"}
    for key in ("keys_secret", "lineage_secret", "trust_config", "state_claim", "data_keys_claim", "wrapper_secret"):
        name = getattr(platform, key)
        if name is None:
            continue
        if not _DNS_LABEL.fullmatch(name):
            raise UsageError(
                "this cannot be the name of a volume, which Kubeflow names after its secret, config map or claim",
                key=f"platform.{key}",
                value=name,
                hint="up to 63 lowercase letters, digits and hyphens, without a dot",
            )
        if name in taken:
            raise UsageError(
                f"this name is taken by {taken[name]}, and volumes are named after secrets, config maps and claims",
                key=f"platform.{key}",
                value=name,
                hint="rename one of them",
            )
        taken[name] = f"platform.{key}"


def _let_decrypt(task: Any, platform: PlatformSettings) -> None:  # noqa: ANN401
    kubernetes.mount_pvc(task, pvc_name=platform.data_keys_claim, mount_path=platform.data_keys_path)
    if platform.wrapper_secret:
        kubernetes.use_secret_as_volume(task, secret_name=platform.wrapper_secret, mount_path=platform.wrapper_path)
    # What a container has there is 64 MiB; this counts as the pod's memory.
    kubernetes.empty_dir_mount(task, volume_name=_PLAINTEXT, mount_path="/dev/shm", medium="Memory")  # noqa: S108


def _ask_for_gpu(task: Any, platform: PlatformSettings) -> None:  # noqa: ANN401
    task.set_accelerator_type(platform.gpu.type).set_accelerator_limit(platform.gpu.limit)
    for label, value in platform.gpu.node_selector.items():
        kubernetes.add_node_selector(task, label_key=label, label_value=value)
    for toleration in platform.gpu.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump(exclude_none=True))
