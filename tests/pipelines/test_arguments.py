"""Arguments of a pipeline, from the command line."""

from mbd.errors import UsageError
from mbd.kubeflow.common import read_params
from mbd.params import Params, load_params
from pipelines.arguments import given
from tests.refusals import refused


def test_parameters_travel_as_one_text_that_means_the_same() -> None:
    params = Params()
    arguments = given("delete", params, ["text"], [], [])
    assert (arguments["modalities"], arguments["model"]) == (["text"], "sentiment")
    assert read_params(arguments["params"]) == params


def test_persons_are_given_by_reference() -> None:
    assert "subjects" not in given("delete", Params(), [], [], [])
    assert given("delete", Params(), [], ["sha256:12"], [])["subjects"] == ["sha256:12"]
    with refused(UsageError, key="subjects"):
        given("train", Params(), [], ["sha256:12"], [])


def test_the_default_modality_comes_from_the_parameters() -> None:
    params = load_params(None, ["requests.modality=visual"])
    assert given("delete", params, [], [], [])["modalities"] == ["visual"]


def test_a_pipeline_for_one_modality_takes_one() -> None:
    assert given("reaudit", Params(), [], [], [])["modality"] == "audio"
    assert given("reaudit", Params(), ["text"], [], [])["modality"] == "text"
    with refused(UsageError, key="--modality"):
        given("reaudit", Params(), ["text", "audio"], [], [])


def test_json_arguments_are_read_as_such() -> None:
    arguments = given("delete", Params(), [], [], ["purge_copies=true", "epsilon=0.5", 'overrides=["training.seed=1"]'])
    assert (arguments["purge_copies"], arguments["epsilon"], arguments["overrides"]) == (True, 0.5, ["training.seed=1"])


def test_an_argument_that_is_missing_or_unknown_is_an_error() -> None:
    with refused(UsageError, key="settings"):
        given("sweep", Params(), [], [], [])
    with refused(UsageError, key="colour"):
        given("delete", Params(), [], [], ["colour=red"])
    with refused(UsageError, key="--argument"):
        given("delete", Params(), [], [], ["colour"])
