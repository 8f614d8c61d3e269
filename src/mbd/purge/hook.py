"""A git hook that lets no purged file out: `git push` first asks `mbd purge check-push`.

DVC pushes data from its cache, by its own pre-push hook or by hand just before; so a push is refused while the cache
holds a file with a tombstone, or while a commit that is about to go out holds one itself. A hook that was there before
runs afterwards, with the same input.
"""

import hashlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.files import write_file
from mbd.git import git, read_objects
from mbd.purge.inventory import take_inventory
from mbd.purge.places.dvc_cache import dvc_cache
from mbd.purge.places.dvc_repository import dvc_repository
from mbd.purge.targets import Targets

_MARK = "# made by `mbd purge hook install`"
_NEXT = "pre-push.before-mbd"
_SCRIPT = """#!/bin/sh
{mark}: no purged file goes out
refs=$(cat)
printf '%s\\n' "$refs" | {mbd} purge check-push --store {store} "$@" || exit 1
next="$(dirname "$0")/{next}"
[ -x "$next" ] || exit 0
printf '%s\\n' "$refs" | "$next" "$@"
"""


def install_hook(repository: Path, store: str) -> Path:
    """Install the pre-push hook of a repository; one that is there is kept and runs afterwards."""
    asked = git("-C", str(repository), "rev-parse", "--git-path", "hooks")
    if asked.returncode:
        raise UsageError("this folder is in no git repository", file=repository, hint="run it in a clone")
    file = repository / asked.stdout.strip() / "pre-push"
    if file.exists() and _MARK not in file.read_text(errors="replace"):
        file.rename(file.with_name(_NEXT))
    mbd = f"{shlex.quote(sys.executable)} -c 'from mbd.cli import main; main()'"
    script = _SCRIPT.format(mark=_MARK, mbd=mbd, store=shlex.quote(store), next=_NEXT)
    write_file(file, script, mode=0o755)
    return file


def check_push(repository: Path, tombstones: Targets, pushed: Iterable[str]) -> None:
    """Raise a DataError if a push would let out a file with a tombstone.

    `pushed`: what git tells its pre-push hook, lines of local ref, local commit, remote ref, remote commit.
    """
    if not len(tombstones):
        return
    if here := dvc_repository(repository):
        cache = dvc_cache(here, frozenset(), shared_caches=False)[:1]
        for finding in take_inventory(cache, tombstones):
            if finding.found:
                raise _refusal(f"the DVC cache holds {finding.found} of them", finding.copies[0].name)
    for name, content in read_objects(repository, _new_objects(repository, pushed)):
        if tombstones.by_sha256(hashlib.sha256(content).hexdigest()):
            raise _refusal("a commit that is about to go out holds one", f"object {name}")


def _new_objects(repository: Path, pushed: Iterable[str]) -> Iterator[str]:
    for line in pushed:
        _, local, _, remote = (*line.split(), "", "", "", "")[:4]
        if local.strip("0"):
            known = [f"^{remote}"] if remote.strip("0") else []
            arguments = ("rev-list", "--objects", local, *known, "--not", "--remotes")
            listed = git("-C", str(repository), *arguments).stdout.splitlines()
            yield from (name for name, _, path in (line.partition(" ") for line in listed) if path)


def _refusal(how: str, where: str) -> DataError:
    return DataError(
        f"this push would bring purged files back: {how}",
        file=where,
        hint="`mbd purge scan --remove` removes them here; then push again",
    )
