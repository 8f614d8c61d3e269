"""Parameters on their way into a task, and numbers on their way out."""

import math

import pytest

from mbd.errors import UsageError
from mbd.kubeflow.common import numbers, read_params, write_params
from mbd.params import Params, load_params


def test_only_what_differs_from_the_defaults_travels() -> None:
    params = load_params(None, ["deletion.epsilon=0.5", "platform.gpu.tolerations=[{key: gpu}]", "store.url=s3://b/p"])
    assert read_params(write_params(params)) == params
    assert len(write_params(params)) < 500
    assert read_params(write_params(Params())) == Params()


def test_a_setting_of_a_task_goes_on_top() -> None:
    text = write_params(load_params(None, ["training.seed=3"]))
    assert read_params(text, "training.seed=7").training.seed == 7


def test_an_image_with_other_defaults_is_refused() -> None:
    text = write_params(Params())
    with pytest.raises(UsageError, match="defaults in this image"):
        read_params(text.replace("{}\n", "training: {epochs: 3}\n"))


def test_a_file_written_by_hand_has_no_digest_and_is_taken_as_it_is() -> None:
    assert read_params("training: {epochs: 3}").training.epochs == 3


def test_metrics_are_finite_numbers_by_dotted_name() -> None:
    tree = {"a": {"b": 1, "c": math.nan}, "d": math.inf, "e": None, "f": True, "g": "text", "h": [1.0], "i": -0.5}
    assert numbers(tree) == {"a.b": 1.0, "i": -0.5}
