"""A git pre-push hook that calls `mbd purge check-push`, so that no purged file is pushed.

DVC pushes data from its cache, by its own pre-push hook or by hand before the push. So a push is refused while the
cache holds a purged file, or while a pushed commit contains one. An existing pre-push hook is kept and runs afterwards,
with the same input.
"""

import hashlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.files import write_file
from mbd.git import git, read_objects
from mbd.purge.contents import Targets
from mbd.purge.inventory import take_inventory
from mbd.purge.workspace import dvc_cache, dvc_repository

_MARK = "# made by `mbd purge hook install`"
_NEXT = "pre-push.before-mbd"
_SCRIPT = """#!/bin/sh
{mark}: no purged file is pushed
refs=$(cat)
printf '%s\\n' "$refs" | {mbd} purge check-push --store {store} --set {trust} "$@" || exit 1
next="$(dirname "$0")/{next}"
[ -x "$next" ] || exit 0
printf '%s\\n' "$refs" | "$next" "$@"
"""


def install_hook(repository: Path, store: str, trust: Path) -> Path:
    """Install the pre-push hook of a repository; an existing hook is kept and runs afterwards."""
    answer = git("-C", str(repository), "rev-parse", "--git-path", "hooks")
    if answer.returncode:
        raise UsageError("this folder is not in a git repository", file=repository, hint="run it in a clone")
    file = repository / answer.stdout.strip() / "pre-push"
    if file.exists() and _MARK not in file.read_text(errors="replace"):
        file.rename(file.with_name(_NEXT))
    mbd = f"{shlex.quote(sys.executable)} -c 'from mbd.cli import main; main()'"
    trusted = shlex.quote(f"certificate.trust={trust.absolute()}")
    script = _SCRIPT.format(mark=_MARK, mbd=mbd, store=shlex.quote(store), trust=trusted, next=_NEXT)
    write_file(file, script, mode=0o755)
    return file


def check_push(repository: Path, tombstones: Targets, pushed: Iterable[str]) -> None:
    """Refuse a push of purged files.

    Args:
        repository: a folder in the git repository.
        tombstones: the purged files.
        pushed: the input of git's pre-push hook: lines of local ref, local commit, remote ref, remote commit.

    Raises:
        DataError: the DVC cache or a pushed commit holds a purged file.

    """
    if not len(tombstones):
        return
    if here := dvc_repository(repository):
        cache = dvc_cache(here, frozenset(), shared_caches=False)[:1]
        for finding in take_inventory(cache, tombstones):
            if finding.found:
                raise _refusal(f"the DVC cache holds {finding.found}", finding.copies[0].name)
    for name, content in read_objects(repository, _new_objects(repository, pushed)):
        if tombstones.by_sha256(hashlib.sha256(content).hexdigest()):
            raise _refusal("a pushed commit contains one", f"object {name}")


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
        f"this push would publish purged files again: {how}",
        file=where,
        hint="`mbd purge scan --remove` removes them here; then push again",
    )
