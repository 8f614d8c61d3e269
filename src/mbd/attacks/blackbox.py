"""Black-box adversary: guesses the private attribute of m* from the outputs over all availability masks.

It knows the inputs it sends, and asks the model as it is served: where the model refuses m* (revoked, or never known),
m* is not fed.
"""

from mbd.attacks.attack import Evidence
from mbd.attacks.probe import guess
from mbd.attacks.setting import Setting
from mbd.attacks.suspect import Suspect
from mbd.attacks.whitebox import guessed

NAME = "blackbox"


def attack(suspect: Suspect, setting: Setting) -> list[Evidence]:
    """Return how often the attribute is guessed from outputs, with m* fed and not fed."""
    ways = (False,) if suspect.refuses(setting.rows, setting.modality) else (True, False)
    seen = [suspect.extract(setting.rows, setting.modality, fed=fed).outputs for fed in ways]
    return guessed(NAME, guess([{**setting.known, "outputs": outputs} for outputs in seen], setting, NAME), setting)
