"""The black-box adversary sees what a model serves, and no more."""

from pathlib import Path

import numpy as np

from mbd.attacks import blackbox
from mbd.attacks.setting import Setting
from mbd.attacks.suspect import Suspect
from mbd.model.checkpoint import load_model
from tests.attacks.models import setting_of, suspect_of


def telling(home: Path, setting: Setting, *, revoked: bool) -> Suspect:
    """The model with a head that adds to the score on which side a row's audio lies."""
    record, tensors = load_model(home / "model")
    told = {name: np.array(x) for name, x in tensors.items()}
    audio = setting.target
    direction = np.linalg.lstsq(audio, 2.0 * setting.attribute.values - 1, rcond=None)[0]
    part = next(part for part in record.tensors["fusion.hidden.weight"].columns if part.reads == "audio")
    told["fusion.hidden.weight"][:2] = 0
    told["fusion.hidden.weight"][:2, part.start : part.stop] = np.outer([5, -5], direction)
    told["fusion.hidden.bias"][:2] = 0
    told["fusion.out.weight"][0] = 0
    told["fusion.out.weight"][0, :2] = [10, -10]
    told["head.weight"][0, 0] = 1
    return Suspect.of("after", record.model_copy(update={"revoked": ("audio",) if revoked else ()}), told)


def test_an_output_that_tells_the_attribute_is_heard_while_the_model_takes_the_modality(home: Path) -> None:
    setting = setting_of(home)
    fed, hidden = blackbox.attack(telling(home, setting, revoked=False), setting)
    assert fed.value > 0.75
    assert hidden.value < 0.65


def test_a_model_that_refuses_the_modality_is_not_fed_it(home: Path) -> None:
    setting = setting_of(home)
    fed, hidden = blackbox.attack(telling(home, setting, revoked=True), setting)
    assert fed.rows.tolist() == hidden.rows.tolist()
    assert fed.value < 0.65


def test_inputs_alone_tell_nothing_of_an_attribute_they_do_not_hold(home: Path) -> None:
    setting = setting_of(home)
    for name in ("deleted", "reference"):
        assert all(abs(evidence.value - 0.5) < 0.1 for evidence in blackbox.attack(suspect_of(home, name), setting))
