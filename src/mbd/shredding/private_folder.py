"""A private temporary folder for plaintext or fetched models, removed when the process is done with it.

    PARENT/mbd-UID/plain-*    mode 0700, locked by the process that uses it

A killed process leaves its folder behind, but not its lock, so the next process removes it.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mbd import outputs
from mbd.errors import UsageError
from mbd.files import locked

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- the folder in it is private
_PREFIX = "plain-"
_KEY = "shredding.temporary"


@contextmanager
def private_folder(parent: str | None, key: str = _KEY) -> Iterator[Path]:
    """Within: an empty folder with mode 0700. Leftovers of killed processes are removed first.

    It is in `parent`, which the parameter `key` names, or without one in memory if possible.
    """
    home = _home(parent, key)
    with ExitStack() as held:
        with locked(home, wait=True):
            outputs.remove_abandoned(home, f"{_PREFIX}*")
            folder = Path(tempfile.mkdtemp(dir=home, prefix=_PREFIX))
            held.enter_context(locked(folder, wait=True))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def remove_abandoned(parent: str | None) -> None:
    """Remove the leftovers of killed processes."""
    home = _home(parent)
    with locked(home, wait=True):
        outputs.remove_abandoned(home, f"{_PREFIX}*")


def refuse_without_room(folder: Path, needed: int) -> None:
    """Raise a UsageError if `needed` bytes do not fit into `folder`."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"not enough space for the plaintext: {needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free",
            key=_KEY,
            value=folder.parent.parent,
            hint="name a folder with more space; if it is not in memory, plaintext is written to a disk",
        )


def _home(parent: str | None, key: str = _KEY) -> Path:
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    above = Path(parent or (SHARED_MEMORY if usable else tempfile.gettempdir()))
    home = above / f"mbd-{os.getuid()}"
    try:
        above.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        facts = home.lstat()
    except OSError as error:
        raise UsageError(f"the private folder cannot be created: {error.strerror}", key=key, value=home) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise UsageError(
            "other users can access the private folder",
            key=key,
            value=home,
            hint="remove it, or name another folder; it must be your own, with mode 0700",
        )
    return home
