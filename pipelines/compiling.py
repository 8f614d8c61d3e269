"""From a pipeline's name to its compiled form: the same text each time, so that it can be compared and versioned."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfp import compiler

from mbd.errors import UsageError
from mbd.files import write_file
from mbd.params.platform import PlatformSettings
from pipelines import NAMES


def build(name: str, platform: PlatformSettings) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the pipeline `name` for a platform."""
    if name not in NAMES:
        raise UsageError("there is no such pipeline", key="NAME", value=name, hint=f"one of {', '.join(NAMES)}")
    # kfp looks at every frame of the stack for every task, and the stack of a thread is short.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(import_module(f"pipelines.{name}").pipeline, platform).result()


def compiled(name: str, platform: PlatformSettings) -> str:
    """Return the pipeline as the YAML that Kubeflow takes; it does not depend on the host it is sent to."""
    return _compiled(name, platform.model_copy(update={"kubeflow_host": None}).model_dump_json())


@cache  # a submission needs the text twice
def _compiled(name: str, settings: str) -> str:
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.yaml"
        compiler.Compiler().compile(build(name, PlatformSettings.model_validate_json(settings)), str(file))
        return file.read_text(encoding="utf-8")


def write(names: Sequence[str], platform: PlatformSettings, out: Path) -> Iterator[Path]:
    """Write the pipelines `names` (none: all) to `out`."""
    for name in names or NAMES:
        write_file(out / f"{name}.yaml", compiled(name, platform))
        yield out / f"{name}.yaml"
