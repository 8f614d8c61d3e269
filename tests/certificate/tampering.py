"""Mutations of published certificates: what an attacker could try, drawn at random from a named stream.

A mutation changes one or several of the named files; :meth:`TamperingCase.accepts` is whether a verifier accepts the
result. A verifier that is `blind` to some checks shows that the harness notices what gets past the others.
"""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rfc8785

from mbd.certificate.verification import VerificationInput, from_folder, from_store, verify_bundle
from mbd.errors import MbdError
from mbd.files import to_json
from mbd.storage import open_store
from mbd.trust.trust_file import Trust, read_trust
from mbd.verifier.verdict import decide, passed

Files = dict[str, bytes]
Mutation = Callable[["TamperingCase", np.random.Generator], Files]
TRUST = "trust.json"


@dataclass
class TamperingCase:
    """What a verifier is given: a bundle, a model, a trust file, and a store, each of which may be exchanged."""

    folder: Path
    genuine: Files
    """every file, by path below `folder`"""
    others: list[Files]
    """the same of other certificates of the same authority"""
    digest: str
    """the certificate's name in the store"""
    trust: Trust
    online: bool = False
    """ask the store instead of opening the bundle's folder"""

    def lay_out(self, files: Files) -> None:
        """Put files in their places; a file that is empty in a mutation is not there."""
        for name, content in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if content == GONE:
                place.unlink(missing_ok=True)
            else:
                place.write_bytes(content)

    def accepts(self, mutated: Files, blind: frozenset[str] = frozenset()) -> bool:
        """Return whether a verifier accepts the panel with these files exchanged; it is restored afterwards."""
        self.lay_out(mutated)
        try:
            trust = read_trust(self.folder / TRUST) if TRUST in mutated else self.trust
            verdict = verify_bundle(self._given(), trust)
        except MbdError:
            return False
        finally:
            self.lay_out({name: self.genuine.get(name, GONE) for name in mutated})
        checks = [passed(check.name, "not looked at") if check.name in blind else check for check in verdict.checks]
        kept = verdict.model_copy(update={"checks": tuple(checks)})
        return decide(checks) == "verified" if self.online else kept.genuine

    def _given(self) -> VerificationInput:
        if not self.online:
            return from_folder(self.folder / "bundle", self.folder / "model")
        fetched = self.folder / "fetched"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir()
        return from_store(open_store(f"file://{self.folder}/store"), self.digest, fetched, self.folder / "model")


GONE = b"\0gone\0"


def read_tree(folder: Path, prefix: str) -> Files:
    """Return all files below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def in_bytes(name: str) -> Mutation:
    """Mutate the bytes of a file: bits, bytes, pieces, ends."""

    def mutate(scene: TamperingCase, draw: np.random.Generator) -> Files:
        content = scene.genuine[name]
        while True:
            kind = BYTES[draw.integers(len(BYTES))]
            if (changed := kind(content, draw)) != content:
                return {name: changed}

    return mutate


def any_of(names: list[str]) -> Mutation:
    """Mutate the bytes of one of several files, or take it away."""

    def mutate(scene: TamperingCase, draw: np.random.Generator) -> Files:
        name = names[draw.integers(len(names))]
        return {name: GONE} if draw.random() < 0.05 else in_bytes(name)(scene, draw)

    return mutate


def in_fields(name: str) -> Mutation:
    """Mutate a field of a JSON file and write it as it is written genuinely."""

    def mutate(scene: TamperingCase, draw: np.random.Generator) -> Files:
        value = json.loads(scene.genuine[name])
        genuine = to_json(value).encode()
        write = to_json if genuine == scene.genuine[name] else lambda v: rfc8785.dumps(v).decode()
        while (changed := write(change_field(value, draw)).encode()) == scene.genuine[name]:
            pass
        return {name: changed}

    return mutate


def in_statement(scene: TamperingCase, draw: np.random.Generator) -> Files:
    """Mutate a field of what was signed, and put it back into the envelope in canonical form."""
    envelope = json.loads(scene.genuine["bundle/certificate.json"])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    changed = rfc8785.dumps(change_field(statement, draw))
    while base64.b64encode(changed).decode() == envelope["payload"]:
        changed = rfc8785.dumps(change_field(statement, draw))
    envelope["payload"] = base64.b64encode(changed).decode()
    return {"bundle/certificate.json": rfc8785.dumps(envelope)}


def exchanged(scene: TamperingCase, draw: np.random.Generator) -> Files:
    """Take files of other certificates, of other names, or away: swapped, replayed, missing."""
    names = [
        name for name in scene.genuine if name.startswith(("bundle/", "model/")) and name != "model/indices.safetensors"
    ]
    while True:
        chosen = draw.choice(names, size=draw.integers(1, 4), replace=False)
        kind = draw.integers(3)
        if kind == 0:
            source = scene.others[draw.integers(len(scene.others))]
            mutated = {name: source[name] for name in chosen if name in source}
        elif kind == 1:
            mutated = {name: scene.genuine[draw.choice(names)] for name in chosen}
        else:
            mutated = dict.fromkeys(chosen, GONE)
        if any(scene.genuine[name] != content for name, content in mutated.items()):
            return mutated


def change_field(value: Any, draw: np.random.Generator) -> Any:
    """Return JSON with one place changed: a value, a key, an order, something more or less."""
    places = list(_places(value))
    path = places[draw.integers(len(places))]
    value = json.loads(json.dumps(value))
    if not path:
        return _other_value(value, draw)
    parent = value
    for step in path[:-1]:
        parent = parent[step]
    kind = draw.integers(5)
    if kind == 0:
        del parent[path[-1]]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(int(draw.integers(len(parent) + 1)), parent[path[-1]])
    elif kind == 1:
        parent[f"{path[-1]}x"] = parent[path[-1]]
    elif kind == 2 and isinstance(parent, list):
        other = int(draw.integers(len(parent)))
        parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
    elif kind == 2:
        other = list(parent)[draw.integers(len(parent))]
        parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
    else:
        parent[path[-1]] = _other_value(parent[path[-1]], draw)
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _places(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _places(part, (*path, index))


def _other_value(value: Any, draw: np.random.Generator) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return [value + 1, -value - 1, value * 2 + 1, 0 if value else 1, str(value), None][draw.integers(6)]
    if isinstance(value, str) and value:
        place = int(draw.integers(len(value)))
        letter = "0123456789abcdefxyz"[draw.integers(19)]
        return [value[:place] + letter + value[place + 1 :], value[:place], value + letter, "", None][draw.integers(5)]
    if isinstance(value, dict):
        return [{}, None, list(value.items())][draw.integers(3)]
    if isinstance(value, list):
        return [[], None, value[::-1], value * 2][draw.integers(4)]
    return [0, "", False, {}][draw.integers(4)]


def _flip(content: bytes, draw: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.integers(1, 4)):
        changed[draw.integers(len(changed))] ^= 1 << int(draw.integers(8))
    return bytes(changed)


def _overwrite(content: bytes, draw: np.random.Generator) -> bytes:
    start = int(draw.integers(len(content)))
    piece = draw.bytes(int(draw.integers(1, 17)))
    return (content[:start] + piece + content[start + len(piece) :])[: len(content)]


def _insert(content: bytes, draw: np.random.Generator) -> bytes:
    start = int(draw.integers(len(content) + 1))
    return content[:start] + [b" ", b"\n", b"\0", draw.bytes(1), draw.bytes(32)][draw.integers(5)] + content[start:]


def _remove(content: bytes, draw: np.random.Generator) -> bytes:
    start = int(draw.integers(len(content)))
    return content[:start] + content[start + int(draw.integers(1, 33)) :]


def _truncate(content: bytes, draw: np.random.Generator) -> bytes:
    return content[: draw.integers(len(content))]


def _append(content: bytes, draw: np.random.Generator) -> bytes:
    return content + [b" ", b"\n", b"\0", draw.bytes(32), content][draw.integers(5)]


def _exchange_pieces(content: bytes, draw: np.random.Generator) -> bytes:
    first, second, third = sorted(int(n) for n in draw.integers(0, len(content) + 1, 3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


BYTES = (_flip, _flip, _overwrite, _insert, _remove, _truncate, _append, _exchange_pieces)
