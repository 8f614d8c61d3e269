"""What all components share: the decorator.

The image brings mbd and kfp, so that nothing is installed when a step starts. Pipelines put the image of
`platform.image` in place of the one named here.
"""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from mbd.params.platform import PlatformSettings

IMAGE = PlatformSettings().image


def component(function: Callable[..., object]) -> Any:  # noqa: ANN401 -- kfp has no types
    """Make a component of a function that runs in our image."""
    return dsl.component(function, base_image=IMAGE, install_kfp_package=False)
