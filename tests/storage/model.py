"""A store compared with a dictionary under random operations."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mbd.storage.store import ConflictError, NotThereError, OtherContentError, Store, StoredObject

# No name is a folder of another, as the interface requires; several share a prefix.
NAMES = st.sampled_from(["a", "a-b", "b/a", "b/a-b", "b/c/d", "b/c0", "b/cé", "x/y/z", "x/y/z1"])
CONTENTS = st.one_of(st.sampled_from([b"", b"0", b"1"]), st.binary(max_size=30))


def machine_of(opened: Callable[[], AbstractContextManager[Store]]) -> type[RuleBasedStateMachine]:
    """Return a test of the stores that `opened` returns, each empty at first."""

    class StoreAgainstDictionary(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.stack = ExitStack()
            self.model: dict[str, bytes] = {}
            self.seen: dict[str, str] = {}

        @initialize()
        def open(self) -> None:
            self.store = self.stack.enter_context(opened())

        def teardown(self) -> None:
            self.stack.close()

        @rule(name=NAMES, content=CONTENTS)
        def create(self, name: str, content: bytes) -> None:
            try:
                self.store.create(name, content)
                assert self.model.setdefault(name, content) == content
            except OtherContentError:
                assert self.model.get(name, content) != content

        @rule(name=NAMES, content=CONTENTS)
        def move(self, name: str, content: bytes) -> None:
            if name in self.model:
                before, tag = self.store.read_tagged(name)
                assert before == self.model[name]
                self.store.replace(name, content, expected=tag)
            else:
                self.store.replace(name, content, expected=None)
            self.model[name] = content

        @rule(name=NAMES)
        def see(self, name: str) -> None:
            if name in self.model:
                self.seen[name] = self.store.read_tagged(name)[1]

        @rule(name=NAMES, content=CONTENTS)
        def move_from_what_was_seen(self, name: str, content: bytes) -> None:
            """Succeeds only if the object is unchanged: same tag, or still missing."""
            expected = self.seen.get(name)
            now = self.store.stat(name)
            try:
                self.store.replace(name, content, expected=expected)
                assert expected == (now.tag if now else None)
                self.model[name] = content
            except ConflictError:
                assert expected != (now.tag if now else None)

        @rule(chosen=st.sets(NAMES))
        def delete(self, chosen: set[str]) -> None:
            assert self.store.delete(StoredObject(name, 0, "") for name in chosen) == {}
            for name in chosen:
                self.model.pop(name, None)

        @rule(name=NAMES)
        def read(self, name: str) -> None:
            try:
                assert self.store.read(name) == self.model[name]
            except NotThereError:
                assert name not in self.model

        @rule(prefix=st.sampled_from(["", "a", "b", "b/", "b/c", "b/c/", "x/y/z", "zz"]))
        def list(self, prefix: str) -> None:
            expected = sorted(
                (n for n in self.model if n.startswith(prefix)),
                key=str.encode,
            )
            found = [(each.name, each.size) for each in self.store.list(prefix)]
            assert found == [(name, len(self.model[name])) for name in expected]

        @invariant()
        def same_names(self) -> None:
            if hasattr(self, "store"):
                assert {each.name for each in self.store.list()} == set(self.model)

    return StoreAgainstDictionary
