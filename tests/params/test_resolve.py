"""One file, one model: what is accepted, what is refused and how; and paths in a container."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import ExitCode, UsageError
from mbd.params import Params, load_params, params_digest, to_yaml
from mbd.params.resolve import MOUNTED, in_container
from mbd.params.tree import known_keys
from tests.refusals import refused

REPOSITORY = Path(__file__).parents[2]


def written(folder: Path, text: str) -> Path:
    file = folder / "params.yaml"
    file.write_text(text)
    return file


def test_the_papers_operating_point_is_the_default() -> None:
    params = Params()
    assert params.features.calibration.size == 5000
    assert params.model.joint.property_dim == 128
    assert params.training.property_learning_rate == 1e-3
    surgery = params.deletion.surgery
    assert (surgery.budget, surgery.saliency_threshold, surgery.importance_threshold) == (0.03, 0.1, 0.05)
    assert surgery.chi_max == 0.99
    assert params.evaluation.corruption.share == 0.1
    assert params.evaluation.missing_rates == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def test_the_repositorys_file_lists_every_parameter_and_no_other() -> None:
    tree, known = yaml.safe_load((REPOSITORY / "params.yaml").read_text()), list(known_keys(Params))
    expected = {key for key in known if not any(other.startswith(f"{key}.") for other in known)}

    def leaves(branch: object, prefix: str) -> set[str]:
        if isinstance(branch, dict) and prefix not in expected:
            return {leaf for k, v in branch.items() for leaf in leaves(v, f"{prefix}.{k}" if prefix else k)}
        return {prefix}

    assert leaves(tree, "") == expected, "write it again with: mbd params > params.yaml"


def test_printed_parameters_read_back_as_themselves(tmp_path: Path) -> None:
    params = load_params(
        written(tmp_path, "training: {seed: 7}"), ["deletion.epsilon=0.5", "features.source.preset=mosei"]
    )
    assert load_params(written(tmp_path, to_yaml(params))) == params


def test_printed_parameters_keep_their_order_and_long_lists(tmp_path: Path) -> None:
    digests = [f"{n:064x}" for n in range(40)]
    params = load_params(None, ["features.source.synthetic.dims={text: 12, audio: 6}", f"purge.also={digests}"])
    again = load_params(written(tmp_path, to_yaml(params)))
    # Models are built in the order of the modalities.
    assert list(again.features.source.synthetic.dims or {}) == ["text", "audio"]
    assert again.purge.also == tuple(digests)


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    params = load_params(written(tmp_path, "training: {seed: 7, epochs: 3}"), ["training.seed=8"])
    assert (params.training.seed, params.training.epochs) == (8, 3)


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("features.sorce.kind=npz", "features.source"),
        ("features.source.knd=npz", "features.source.kind"),
        ("deletion.surgery.bugdet=0.01", "deletion.surgery.budget"),
        ("trainin.epochs=3", "training"),
        ("epochs=3", "training.epochs"),
    ],
)
def test_a_wrong_key_names_the_nearest_right_one(setting: str, nearest: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_params(None, [setting])
    assert f"did you mean {nearest}" in str(refusal.value)
    assert refusal.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    "setting",
    [
        "deletion.surgery.budget=0.051",
        "deletion.surgery.budget=0",
        "deletion.delta=1",
        "deletion.epsilon=0",
        "deletion.epsilon=.inf",
        "model.joint.losses.alpha=1.5",
        "deletion.surgery.chi_max=1",
        "training.epochs=0",
        "training.epochs=many",
        "training.momentum=1",
        "training.seed=-1",
        "features.calibration.share=1.1",
        "features.label_range=[3, -3]",
        "features.source.kind=npz",
        "features.source.kind=parquet",
        "features.source.modalities=[text+visual]",
        "evaluation.missing_rates=[1.0]",
        "evaluation.corruption.share=-0.1",
        "store.url=ftp://somewhere",
        "monitoring.pushgateway=http://user:secret@host:9091",
    ],
)
def test_every_range_is_checked_and_the_refusal_names_the_key(setting: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_params(None, [setting])
    assert refusal.value.key is not None
    assert refusal.value.key.split(".")[0] == setting.split(".", maxsplit=1)[0]


def test_a_setting_without_a_value_is_refused() -> None:
    with refused(UsageError, key="--set"):
        load_params(None, ["training.epochs"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        ("a: " + 2000 * "[", "not YAML"),
        ("a: 2026-99-99", "not YAML"),
        ("- 1", "mapping of sections"),
        ("training: {epoch: 1}", "no such"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with refused(UsageError, match=problem, file=file):
        load_params(file)


def test_parameters_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Params().training.epochs = 3  # type: ignore[misc]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
def test_the_digest_is_the_same_just_for_the_same_parameters(one: int, other: int) -> None:
    digests = [params_digest(load_params(None, [f"training.seed={seed}"])) for seed in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("features.source.kind=npz", "source.kind=npz reads a file: set features.source.path"),
        ("features.source={kind: synthetic, path: own.npz}", "source.kind=synthetic reads no file: leave"),
    ],
)
def test_a_source_and_its_file_belong_together(setting: str, problem: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_params(None, [setting])
    assert refusal.value.problem.startswith(problem)


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
