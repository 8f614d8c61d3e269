"""The files to purge, by SHA-256, and by the MD5 under which DVC stores the same content."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from mbd.formats.purge import Obstacle, Target

ReportObstacle = Callable[[Obstacle], None]


class Targets:
    """A set of files to purge, with lookup by digest, by size, and by the digests of their tensors."""

    def __init__(self, targets: Iterable[Target] = (), released: Iterable[str] = ()) -> None:
        self.released = frozenset(released)
        """SHA-256 of files of current releases, which stay, whatever tensors they have"""
        self._by_sha256: dict[str, Target] = {}
        for target in targets:
            self.add(target)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_sha256.values())

    def __len__(self) -> int:
        return len(self._by_sha256)

    def add(self, target: Target) -> None:
        """Add a file, or what is missing of a known one: its MD5, its size, its tensors."""
        known = self._by_sha256.get(target.sha256, target)
        size = target.size if known.size is None else known.size
        more = {"md5": known.md5 or target.md5, "size": size, "tensors": known.tensors or target.tensors}
        self._put(known.model_copy(update=more))

    def forget_tensors(self, target: Target, digests: Container[str]) -> None:
        """Take tensors off a file: it is not recognised by them."""
        left = {digest: size for digest, size in target.tensors.items() if digest not in digests}
        self._put(target.model_copy(update={"tensors": left}))

    def without(self, sha256: Iterable[str]) -> "Targets":
        """Return the targets except these."""
        left_out = set(sha256)
        return Targets((target for target in self if target.sha256 not in left_out), self.released)

    def by_sha256(self, digest: str) -> Target | None:
        """Return the target with this SHA-256, or None."""
        return self._by_sha256.get(digest)

    def by_md5(self, digest: str) -> Target | None:
        """Return the target with this MD5, or None."""
        return self._lookup.by_md5.get(digest)

    def by_tensor(self, digest: str) -> Target | None:
        """Return the target with a tensor of this SHA-256, or None."""
        return self._lookup.by_tensor.get(digest)

    def has_tensor_of(self, size: int) -> bool:
        """Return whether a tensor of a target has this many bytes."""
        return size in self._lookup.tensor_sizes

    def may_be(self, size: int) -> bool:
        """Return whether a file of this size can be a target."""
        sizes = self._lookup.sizes
        return size in sizes or None in sizes

    @property
    def without_md5(self) -> "Targets":
        """The targets that cannot be found by the names that DVC gives."""
        return Targets(target for target in self if target.md5 is None)

    @property
    def counts(self) -> dict[str, int]:
        """The number of targets of each kind."""
        return dict(sorted(Counter(target.what for target in self).items()))

    def _put(self, target: Target) -> None:
        self._by_sha256[target.sha256] = target
        self.__dict__.pop("_lookup", None)

    @cached_property
    def _lookup(self) -> "_Lookup":
        return _Lookup(
            by_md5={t.md5: t for t in self if t.md5},
            sizes={t.size for t in self},
            by_tensor={digest: t for t in self for digest in t.tensors},
            tensor_sizes={size for t in self for size in t.tensors.values()},
        )


class _Lookup(NamedTuple):
    by_md5: dict[str, Target]
    sizes: set[int | None]
    by_tensor: dict[str, Target]
    tensor_sizes: set[int]
