"""Paths of the parameters in a container."""

from collections.abc import Iterator
from typing import Any

from mbd.params import Params, load_params
from mbd.params.resolve import MOUNTED, in_container


def test_with_a_claim_state_outlives_the_pod_unless_it_is_put_elsewhere() -> None:
    params = in_container(load_params(None, ["platform.state_claim=state", "purge.tombstones=s3://bucket/store"]))
    assert params.deletion.ledgers == params.platform.state_path == "/workspace/build/ledgers"
    assert params.certificate.private == "/workspace/build/ledgers/private"
    assert params.purge.tombstones == "s3://bucket/store"


def test_keys_and_trust_file_are_where_secret_and_config_map_are_mounted() -> None:
    named = ["keys_secret=keys", "lineage_secret=lineage", "trust_config=trust", "keys_path=/keys"]
    params = in_container(load_params(None, [f"platform.{setting}" for setting in named]))
    assert params.certificate.signers == ("file:/keys/signer.pem",)
    assert params.certificate.log_signer == "file:/keys/log.pem"
    assert params.certificate.trust == "/workspace/build/trust/trust.json"
    assert params.certificate.lineage_key == "/workspace/build/lineage/lineage.key"


def test_vectors_of_media_are_kept_for_the_tasks_that_follow_but_never_plain_beside_encrypted_data() -> None:
    named = load_params(None, ["platform.state_claim=state"])
    assert in_container(named).features.source.media.cache == "/workspace/build/ledgers/media"
    encrypted = load_params(None, ["platform.state_claim=state", "shredding.enabled=true"])
    assert in_container(encrypted).features.source.media.cache == Params().features.source.media.cache


def test_where_nothing_is_mounted_nothing_changes() -> None:
    assert in_container(Params()) == Params()


def test_every_folder_of_the_parameters_is_mounted_or_known_to_need_none() -> None:
    none = {
        "monitoring.textfile": "a node exporter reads it on one machine",
        "platform.features.path": "in a DVC repository",
        "purge.kfp_root": "outputs of local runs",
        "serving.tokens": "of a server, not of tasks",
    }
    folders = {
        key
        for key, value in flat(Params().model_dump())
        if isinstance(value, str) and value.startswith(("build/", "file:build/"))
    }
    own = {"store.url"}
    assert folders - own <= {*none, *(key for keys in MOUNTED.values() for key in keys)}


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
