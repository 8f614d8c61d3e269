"""Names of tensors in a file and in a module: what agrees, what a wrapper added, and the line to write for the rest."""

import numpy as np
import pytest

from mbd.errors import DataError, UsageError
from mbd.model.matching import MatchedNames, Renames, match_names
from mbd.tensors import Array
from tests.refusals import refused

MODULE: dict[str, Array] = {
    "text.0.weight": np.zeros((4, 3), np.float32),
    "text.0.bias": np.zeros(4, np.float32),
    "audio.0.weight": np.zeros((4, 3), np.float32),
    "audio.0.bias": np.zeros(4, np.float32),
    "scale": np.zeros(1, np.float32),
    "norm.num_batches_tracked": np.array(0),
}


def trained(beginning: str = "", **others: tuple[int, ...]) -> dict[str, Array]:
    """The state of the module under other beginnings, each tensor with a value of its own."""
    state = {f"{beginning}{name}": np.full(x.shape, i + 1, x.dtype) for i, (name, x) in enumerate(MODULE.items())}
    return state | {name.replace("__", "."): np.ones(shape, np.float32) for name, shape in others.items()}


def match(state: dict[str, Array], renames: Renames | None = None) -> dict[str, float]:
    found = match_names(state, MODULE, renames or {}, "own:Net").tensors
    assert list(found) == list(MODULE)
    return {name: float(x.flat[0]) for name, x in found.items()}


EXPECTED = {name: i + 1.0 for i, name in enumerate(MODULE)}


@pytest.mark.parametrize("beginning", ["", "model.", "module.", "module._orig_mod.net."])
def test_names_agree_but_for_what_a_wrapper_put_before_them(beginning: str) -> None:
    assert match(trained(beginning)) == EXPECTED


def test_what_lies_beside_the_wrapped_module_is_not_used_and_listed() -> None:
    found = match_names(trained("model.", loss__weight=(3,), metric__sum=(1,)), MODULE, {}, "own:Net")
    assert found.table == (
        MatchedNames("model.text.…", "text.…", 2, 16),
        MatchedNames("model.audio.…", "audio.…", 2, 16),
        MatchedNames("model.scale", "scale", 1, 1),
        MatchedNames("model.norm.…", "norm.…", 1, 1),
        MatchedNames("loss…", "not used", 1, 3),
        MatchedNames("metric…", "not used", 1, 1),
    )


def test_weights_of_the_only_submodule_find_their_place() -> None:
    inner = {name.removeprefix("model."): x for name, x in trained("model.").items()}
    module = {f"wrapped.{name}": x for name, x in MODULE.items()}
    assert list(match_names(inner, module, {}, "own:Net").tensors) == list(module)


def test_two_models_in_one_file_have_to_be_told_apart() -> None:
    both = trained("online.") | trained("target.")
    with refused(UsageError, match="2 sets", key="model.rename", hint="""--set 'model.rename={"target.": ""}'"""):
        match(both)
    assert match(both, {"online.": None, "target.": ""}) == EXPECTED


def test_renamed_layers_of_the_same_shapes_are_proposed_and_never_taken_by_themselves() -> None:
    state = {name.replace("audio.", "speech.net."): x for name, x in trained(loss__margin=(1, 1)).items()}
    with refused(DataError, key="audio.0.weight") as refusal:
        match(state)
    line = """--set 'model.rename={"speech.net.": "audio.", "loss.": null}'"""
    assert refusal.value.hint == f"if these are the same layers, write {line}"
    assert match(state, {"speech.net.": "audio.", "loss.": None}) == EXPECTED


def test_a_tensor_that_is_left_over_is_named_with_the_line_that_leaves_it_out() -> None:
    state = trained(other_head__weight=(9, 9), text__extra=(7,))
    with refused(DataError, key="other_head.weight") as refusal:
        match(state)
    line = """--set 'model.rename={"other_head.": null, "text.extra": null}'"""
    assert refusal.value.hint == f"if the module does not need it, write {line}"
    assert match(state, {"other_head.": None, "text.extra": None}) == EXPECTED


def test_another_shape_is_named_with_both_sizes() -> None:
    state = trained()
    state["text.0.weight"] = np.ones((5, 3), np.float32)
    with refused(DataError, key="text.0.weight", value="(5, 3) in the weights, (4, 3) in the module"):
        match(state)


def test_a_counter_that_the_file_lacks_stays_as_built() -> None:
    state = trained()
    del state["norm.num_batches_tracked"]
    assert match(state) == {**EXPECTED, "norm.num_batches_tracked": 0}
    assert MatchedNames("as built", "norm.num_batches_tracked", 1, 1) in match_names(state, MODULE, {}, "").table


def test_a_beginning_that_nothing_has_is_refused() -> None:
    with refused(UsageError, match=r"begins with 'modle\.'", key="model.rename", hint="they are model…"):
        match(trained("model."), {"modle.": ""})
