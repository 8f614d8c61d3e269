"""Compiled pipelines: byte for byte what lies in the repository, and placed as the parameters say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mbd.errors import UsageError
from mbd.params.platform import GpuSettings, PlatformSettings, RetriesSettings, TolerationSettings
from mbd.production.stages import STAGES, Stages
from pipelines import NAMES
from pipelines.compiling import compiled
from tests.refusals import refused

GOLDENS = Path(__file__).parents[2] / "pipelines"
SIGNING = {"certify", "publish", "purge", "register"}
NAMING = {"fetch", "delete", "evaluate"}
"""tasks of the pipeline `delete` that need the lineage key"""


def documents(name: str, platform: PlatformSettings | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pipeline and its Kubernetes part."""
    spec, kubernetes = yaml.safe_load_all(compiled(name, platform or PlatformSettings()))
    return spec, kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def tasks(tree: Any) -> dict[str, Any]:
    """Return every task of a pipeline, nested ones too."""
    found: dict[str, Any] = {}
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "tasks":
                found |= value
            found |= tasks(value)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_yaml_in_the_repository_is_what_is_compiled(name: str) -> None:
    golden = (GOLDENS / f"{name}.yaml").read_text(encoding="utf-8")
    assert compiled(name, PlatformSettings()) == golden, "run `mbd pipeline compile` and look at the difference"


def test_only_a_sweep_is_answered_from_the_cache_and_only_until_it_deletes() -> None:
    """Since an earlier run persons may have revoked recordings, and a purge may have removed artifacts."""
    for name in NAMES:
        found = tasks(documents(name)[0])
        cached = {task for task, one in found.items() if one.get("cachingOptions", {}).get("enableCache")}
        assert cached == ({"features", "train", "reference", "settings"} if name == "sweep" else set()), name


def test_tasks_that_delete_follow_the_order_of_the_stages() -> None:
    found = tasks(documents("delete")[0])
    for number, stage in enumerate(STAGES):
        assert not set(STAGES[number + 1 :]) & set(found[stage]["dependentTasks"])
        assert callable(getattr(Stages, stage))


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_travel_once_and_as_an_artifact(name: str) -> None:
    spec, _ = documents(name)
    texts = {task for task, found in tasks(spec).items() if "params" in found.get("inputs", {}).get("parameters", {})}
    assert texts == {"fetch" if name == "delete" else "features"}
    own = {task: found for task, found in tasks(spec).items() if f"exec-{task}" in spec["deploymentSpec"]["executors"]}
    read = {task for task, found in own.items() if "params" in found.get("inputs", {}).get("artifacts", {})}
    assert set(own) - read == texts | set(own) & {"require-purged"}


def test_the_arguments_of_a_deletion_are_typed() -> None:
    arguments = documents("delete")[0]["root"]["inputDefinitions"]["parameters"]
    assert {name: found["parameterType"] for name, found in arguments.items()} == {
        **dict.fromkeys(("model", "request", "method", "params"), "STRING"),
        **dict.fromkeys(("modalities", "subjects", "overrides"), "LIST"),
        "epsilon": "NUMBER_DOUBLE",
        "purge_copies": "BOOLEAN",
    }
    assert {name for name, found in arguments.items() if not found.get("isOptional")} == {"modalities"}


def test_a_deletion_has_no_task_that_only_trains() -> None:
    found = tasks(documents("delete")[0])
    assert not {"train", "reference"} & set(found)
    assert "before" in found["attack"]["inputs"]["artifacts"]


def test_references_are_trained_side_by_side_for_the_modalities_that_the_data_step_names() -> None:
    found = tasks(documents("train")[0])
    loop = next(task for task in found.values() if task["taskInfo"]["name"] == "each-modality")
    given = loop["inputs"]["parameters"][loop["parameterIterator"]["items"]["inputParameter"]]
    assert given["taskOutputParameter"] == {"outputParameterKey": "Output", "producerTask": "features"}
    assert "references" in found["register"]["inputs"]["artifacts"]


def test_media_are_extracted_by_as_many_tasks_as_wanted_before_the_features_are_read() -> None:
    spec, kubernetes = documents("train", PlatformSettings(extraction_tasks=3, state_claim="state"))
    parts = {name for name in tasks(spec) if name.startswith("extract")}
    assert len(parts) == 3
    assert set(tasks(spec)["features"]["dependentTasks"]) == parts
    assert {tasks(spec)[name]["inputs"]["parameters"]["shard"]["runtimeValue"]["constant"] for name in parts} == {
        0,
        1,
        2,
    }
    assert all("pvcMount" in kubernetes[f"exec-{name}"] for name in parts)
    with refused(UsageError, key="platform.state_claim", value=None):
        documents("train", PlatformSettings(extraction_tasks=3))


def test_a_refusal_of_the_gate_is_not_tried_again() -> None:
    spec, _ = documents("delete", PlatformSettings(retries=RetriesSettings(count=3, backoff_seconds=5)))
    found = tasks(spec)
    assert "retryPolicy" not in found["certify"]
    assert found["publish"]["retryPolicy"]["maxRetryCount"] == 3
    assert found["publish"]["retryPolicy"]["backoffDuration"] == "5s"


def test_the_last_retry_has_its_full_time() -> None:
    platform = PlatformSettings(retries=RetriesSettings(count=2, backoff_seconds=30), timeout_seconds=7200)
    spec, _ = documents("delete", platform)
    assert tasks(spec)["delete"]["retryPolicy"]["backoffMaxDuration"] == f"{3 * 7200 + 30 + 60}s"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("keys_secret", "team.signing"),
        ("state_claim", "x" * 64),
        ("data_keys_claim", "Keys"),
        ("wrapper_secret", "tmp"),
        ("state_claim", "signing"),
        ("trust_config", "signing"),
    ],
)
def test_a_secret_or_claim_that_cannot_name_a_volume_is_refused(key: str, name: str) -> None:
    platform = PlatformSettings(**{"keys_secret": "signing", key: name})
    with refused(UsageError, key=f"platform.{key}", value=name):
        compiled("delete", platform)


@pytest.mark.parametrize("name", NAMES)
def test_temporary_files_go_to_a_volume(name: str) -> None:
    _, kubernetes = documents(name)
    for executor in kubernetes.values():
        assert {"mountPath": "/tmp", "volumeName": "tmp"} in executor["emptyDirMounts"]


def test_training_goes_to_a_gpu_and_the_rest_does_not() -> None:
    gpu = GpuSettings(
        limit=2, node_selector={"pool": "a100"}, tolerations=(TolerationSettings(key="gpu", effect="NoSchedule"),)
    )
    spec, kubernetes = documents("delete", PlatformSettings(gpu=gpu, image="cpu@sha256:1", gpu_image="gpu@sha256:2"))
    executors = spec["deploymentSpec"]["executors"]
    trainer, attacker = executors["exec-delete"]["container"], executors["exec-attack"]["container"]
    assert (trainer["image"], attacker["image"]) == ("gpu@sha256:2", "cpu@sha256:1")
    assert trainer["resources"]["accelerator"]["resourceCount"] == "2"
    assert kubernetes["exec-delete"]["nodeSelector"]["labels"] == {"pool": "a100"}
    assert kubernetes["exec-delete"]["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "accelerator" not in attacker["resources"]
    assert "nodeSelector" not in kubernetes["exec-attack"]


def test_steps_get_the_digest_of_a_pinned_image_for_the_certificate() -> None:
    spec, _ = documents("delete", PlatformSettings(image="registry/mbd@sha256:12ab"))
    container = spec["deploymentSpec"]["executors"]["exec-certify"]["container"]
    assert {"name": "MBD_IMAGE_DIGEST", "value": "sha256:12ab"} in container["env"]


def test_purge_is_a_task_of_every_run_and_gets_what_was_asked_for() -> None:
    spec, _ = documents("delete")
    assert spec["root"]["inputDefinitions"]["parameters"]["purge_copies"]["defaultValue"] is False
    found = tasks(spec)
    assert "purge_copies" in str(found["purge"]["inputs"]["parameters"]["requested"])
    assert not [name for name in found if name.startswith("condition")]


def test_an_audit_needs_no_model_before() -> None:
    spec, _ = documents("reaudit")
    assert "before" not in tasks(spec)["attack"]["inputs"]["artifacts"]
    assert "train" not in tasks(spec)


def test_secrets_keys_and_ledgers_reach_the_steps_that_need_them() -> None:
    platform = PlatformSettings(
        secrets={"store": {"access": "AWS_ACCESS_KEY_ID"}}, keys_secret="signing", state_claim="ledgers"
    )
    _, kubernetes = documents("delete", platform)
    assert all("secretAsEnv" in executor for executor in kubernetes.values())
    signing = {name for name, executor in kubernetes.items() if "secretAsVolume" in executor}
    named = {"exec-fetch", "exec-delete", "exec-evaluate"}
    assert signing == {"exec-certify", "exec-publish", "exec-purge"} | named
    assert {name for name, executor in kubernetes.items() if "pvcMount" not in executor} == {"exec-require-purged"}


def test_with_a_lineage_key_of_its_own_only_what_signs_has_the_signing_keys() -> None:
    _, kubernetes = documents("delete", PlatformSettings(keys_secret="signing", lineage_secret="lineage"))
    mounted = {
        name: {one["secretName"] for one in executor.get("secretAsVolume", ())} for name, executor in kubernetes.items()
    }
    assert {name for name, found in mounted.items() if "signing" in found} == {
        "exec-certify",
        "exec-publish",
        "exec-purge",
    }
    assert {name for name, found in mounted.items() if found == {"lineage"}} == {
        "exec-fetch",
        "exec-delete",
        "exec-evaluate",
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_trust_file_reaches_every_task_and_signing_keys_only_those_that_sign(name: str) -> None:
    _, kubernetes = documents(name, PlatformSettings(keys_secret="signing", trust_config="trust"))
    assert all(executor["configMapAsVolume"][0]["configMapName"] == "trust" for executor in kubernetes.values())
    signing = {name for name, executor in kubernetes.items() if "secretAsVolume" in executor}
    assert signing <= {f"exec-{one}" for one in (*SIGNING, *NAMING, "reaudit")}


@pytest.mark.parametrize("name", NAMES)
def test_what_opens_encrypted_artifacts_reaches_the_steps_that_read_or_write_them(name: str) -> None:
    platform = PlatformSettings(keys_secret="signing", data_keys_claim="data-keys", wrapper_secret="wrapper")
    _, kubernetes = documents(name, platform)
    steps = {one.removeprefix("exec-").rstrip("-0123456789"): executor for one, executor in kubernetes.items()}
    opening = {step for step, executor in steps.items() if "pvcMount" in executor}
    assert set(steps) - opening == set(steps) & {"settings", "reaudit", "require-purged"}
    for step in opening:
        mounted = {one["secretName"]: one["mountPath"] for one in steps[step]["secretAsVolume"]}
        assert mounted["wrapper"] == platform.wrapper_path
        assert ("signing" in mounted) == (step in SIGNING | (NAMING if name == "delete" else set()))
        in_memory = {"medium": "Memory", "mountPath": "/dev/shm", "volumeName": "plaintext"}
        assert in_memory in steps[step]["emptyDirMounts"]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_runs_as_a_user_and_has_an_end(name: str) -> None:
    _, kubernetes = documents(name)
    for executor in kubernetes.values():
        assert executor["securityContext"]["runAsNonRoot"]
        assert executor["activeDeadlineSeconds"] == str(PlatformSettings().timeout_seconds)


def test_an_unknown_pipeline_is_an_error() -> None:
    with refused(UsageError, key="NAME", value="forget"):
        compiled("forget", PlatformSettings())
