"""What must go: files, known by their SHA-256, and by the MD5 under which DVC keeps the same bytes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

What = Literal["weights", "snapshot", "features", "export"]


@dataclass(frozen=True)
class Target:
    """A file that must go."""

    sha256: str
    what: What
    md5: str | None = None
    """None as long as nobody has seen it"""
    size: int | None = None


class Targets:
    """A set of files that must go, looked up by either digest or by size."""

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        self._by_sha256: dict[str, Target] = {}
        self._looked_up: _LookUp | None = None
        for target in targets:
            self.add(target)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_sha256.values())

    def __len__(self) -> int:
        return len(self._by_sha256)

    def add(self, target: Target) -> None:
        """Add a file, or what was not known yet of one that is there."""
        known = self._by_sha256.get(target.sha256, target)
        size = target.size if known.size is None else known.size
        self._by_sha256[target.sha256] = replace(known, md5=known.md5 or target.md5, size=size)
        self._looked_up = None

    def without(self, sha256: Iterable[str]) -> "Targets":
        """Return the others."""
        left_out = set(sha256)
        return Targets(target for target in self if target.sha256 not in left_out)

    def by_sha256(self, digest: str) -> Target | None:
        """Return the file with this SHA-256, if it must go."""
        return self._by_sha256.get(digest)

    def by_md5(self, digest: str) -> Target | None:
        """Return the file with this MD5, if it must go."""
        return self._look_up.by_md5.get(digest)

    def may_be(self, size: int) -> bool:
        """Whether a file of this size has to be looked into."""
        sizes = self._look_up.sizes
        return size in sizes or None in sizes

    @property
    def without_md5(self) -> "Targets":
        """Those that a place cannot be asked for by DVC's names."""
        return Targets(target for target in self if target.md5 is None)

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return dict(sorted(Counter(target.what for target in self).items()))

    @property
    def _look_up(self) -> "_LookUp":
        if self._looked_up is None:
            self._looked_up = _LookUp({t.md5: t for t in self if t.md5}, frozenset(t.size for t in self))
        return self._looked_up


@dataclass(frozen=True)
class _LookUp:
    by_md5: dict[str, Target]
    sizes: frozenset[int | None]
