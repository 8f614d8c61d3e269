"""The private attribute: the data's own, or the first principal component that the other modalities do not predict."""

from pathlib import Path

import numpy as np

from mbd.attacks.context import component_sign
from mbd.features.rows import Rows
from mbd.tensors import Array
from tests.attacks.models import context_of
from tests.features.build import small_rows
from tests.training.build import joint_data


def secretive(split: str, n: int, seed: int) -> tuple[Rows, Array]:
    """Rows whose audio mostly repeats the text, and has a secret direction of its own."""
    rng = np.random.default_rng(seed)
    rows, secret = small_rows(split, n), rng.standard_normal(n)
    audio = 3 * rows.features["text"] @ np.ones((5, 6)) + np.outer(secret, [1, -1, 1, -1, 1, -1])
    audio = audio + 0.1 * rng.standard_normal(audio.shape)
    return Rows(rows.ids, rows.groups, rows.labels, {**rows.features, "audio": audio}, rows.available), secret


def test_the_component_is_the_secret_and_not_what_text_predicts() -> None:
    train, _ = secretive("train", 300, 0)
    attacked, secret = secretive("test", 200, 1)
    side = component_sign(train, attacked, "audio", ("text", "visual"))
    agreement = np.mean(side == (secret > 0))
    assert max(agreement, 1 - agreement) > 0.9
    assert abs(np.corrcoef(side, attacked.features["text"].sum(1))[0, 1]) < 0.2


def test_the_same_rows_have_the_same_attribute() -> None:
    train, _ = secretive("train", 100, 0)
    one, same = (component_sign(train, train, "audio", ("text",)) for _ in range(2))
    assert one.tolist() == same.tolist()
    assert 40 <= one.sum() <= 60


def test_the_attribute_that_the_data_names_comes_first(model_workspace: Path, tmp_path: Path) -> None:
    context = context_of(model_workspace)
    assert context.attribute.origin == "data"
    assert context.attribute.values.tolist() == context.rows.attributes["audio"].tolist()
    joint_data(tmp_path / "data")
    assert context_of(tmp_path, least_rows=10).attribute.origin == "principal component"
