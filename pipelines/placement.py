"""Where and how a task runs, from the section `platform` of the parameters: image, resources, GPU, secrets, retries.

Nothing here depends on a task's work. A task that must not be answered from Kubeflow's cache is placed with
`cached=False`: whatever deletes, attacks, certifies, publishes or purges is done, not remembered.
"""

from typing import Any

from kfp import kubernetes

from mbd.params.platform import PlatformSettings

NON_ROOT = {"run_as_user": 10001, "run_as_group": 10001, "run_as_non_root": True}


def place(
    task: Any,  # noqa: ANN401 -- kfp has no types
    platform: PlatformSettings,
    *,
    trains: bool = False,
    cached: bool = True,
    retried: bool = True,
    signs: bool = False,
    keeps: bool = False,
    opens: bool = True,
) -> Any:  # noqa: ANN401
    """Give a task its place.

    `trains`: on a GPU if there is one; `signs`: with the keys and the trust file; `keeps`: with the volume for what
    must outlive the task (budget ledgers, what opens commitments); `opens`: with what encrypted models and feature data
    are opened with, and memory for their plain form.
    """
    on_gpu = trains and platform.gpu.limit > 0
    image = platform.gpu_image if on_gpu else platform.image
    task.set_container_image(image)
    if pinned := image.partition("@")[2]:
        task.set_env_variable("MBD_IMAGE_DIGEST", pinned)
    task.set_caching_options(enable_caching=cached)
    task.set_cpu_request(platform.cpu)
    task.set_memory_request(platform.memory).set_memory_limit(platform.memory)
    kubernetes.set_timeout(task, platform.timeout_seconds)
    kubernetes.set_security_context(task, **NON_ROOT)
    if retried and platform.retries.count:
        backoff = f"{platform.retries.backoff_seconds:g}s"
        task.set_retry(platform.retries.count, backoff_duration=backoff, backoff_factor=2.0)
    for secret, keys in platform.secrets.items():
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=keys)
    if signs and platform.keys_secret:
        kubernetes.use_secret_as_volume(task, secret_name=platform.keys_secret, mount_path=platform.keys_path)
    if keeps and platform.state_claim:
        kubernetes.mount_pvc(task, pvc_name=platform.state_claim, mount_path=platform.state_path)
    if opens and platform.data_keys_claim:
        _let_decrypt(task, platform)
    if on_gpu:
        _ask_for_gpu(task, platform)
    return task


def _let_decrypt(task: Any, platform: PlatformSettings) -> None:  # noqa: ANN401
    kubernetes.mount_pvc(task, pvc_name=platform.data_keys_claim, mount_path=platform.data_keys_path)
    if platform.wrapper_secret:
        kubernetes.use_secret_as_volume(task, secret_name=platform.wrapper_secret, mount_path=platform.wrapper_path)
    # What a container has there is 64 MiB; this counts as the pod's memory.
    kubernetes.empty_dir_mount(task, volume_name="plaintext", mount_path="/dev/shm", medium="Memory")  # noqa: S108


def _ask_for_gpu(task: Any, platform: PlatformSettings) -> None:  # noqa: ANN401
    task.set_accelerator_type(platform.gpu.type).set_accelerator_limit(platform.gpu.limit)
    for label, value in platform.gpu.node_selector.items():
        kubernetes.add_node_selector(task, label_key=label, label_value=value)
    for toleration in platform.gpu.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump(exclude_none=True))
