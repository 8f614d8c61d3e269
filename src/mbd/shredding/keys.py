"""The data keys: create, find, rewrap and destroy them.

    KEYS/ID.json           a wrapped key, mode 0600
    KEYS/shredding.json    which keys there were, and which were destroyed (:mod:`mbd.formats.shredding`)

A destruction is recorded before it starts and after it has ended. If it is killed and run again, it completes. A key
whose destruction has started is never used again.
"""

import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from mbd.errors import DataError, UsageError
from mbd.files import locked, sync, write_file
from mbd.formats.shredding import RECORD, Destruction, KeyEntry, KeyName, ShreddingRecord, key_id, read_shredding
from mbd.formats.statement import KeyKind
from mbd.params.operations import ShreddingSettings
from mbd.records import Digest, Record, now
from mbd.shredding.wrapper import KEY_BYTES, UnwrapError, Wrapper, open_wrapper

_UNREADABLE = (
    "it cannot be decrypted any more: work without this modality, and create what depends on it again without it"
)


class WrappedKey(Record):
    """The contents of the file of a key."""

    format: Literal["urn:missing-by-design:wrapped-key:v1"] = "urn:missing-by-design:wrapped-key:v1"
    id: Digest
    name: KeyName
    wrapped: str
    """base64"""


class KeyDestroyedError(DataError):
    """The key was destroyed, so the file can never be decrypted."""

    def __init__(self, entry: KeyEntry, hint: str) -> None:
        assert entry.destroyed is not None  # noqa: S101 -- checked by callers
        self.entry = entry
        when = entry.destroyed.done or entry.destroyed.requested
        super().__init__(
            f"the key of {entry.name} was destroyed on {when:%Y-%m-%d %H:%M:%S} UTC: {entry.destroyed.reason}",
            key="key",
            value=entry.id,
            hint=hint,
        )


class Keyring:
    """The folder of the data keys, and their wrapper."""

    def __init__(self, folder: Path, wrapper: Wrapper) -> None:
        self.folder, self.wrapper = folder, wrapper
        self._known: dict[str, bytes] = {}

    @classmethod
    def of(cls, settings: ShreddingSettings) -> "Keyring":
        """Return the keys in the folder `shredding.keys`."""
        return cls(Path(settings.keys), open_wrapper(settings.wrapper))

    def make(self, name: KeyName) -> tuple[str, bytes]:
        """Return id and key for encryption; the key is created if needed, but never again after its destruction."""
        with self._locked():
            record = read_shredding(self.folder)
            entry = record.last(name)
            if entry and entry.destroyed:
                raise KeyDestroyedError(
                    entry, "leave the revoked modality out, or set shredding.lineage to the name of a new lineage"
                )
            if entry:
                return entry.id, self.find(entry.id, name)
            secret = secrets.token_bytes(KEY_BYTES)
            entry = KeyEntry(id=key_id(secret), name=name, created=now())
            self._write_key(entry, secret, self.wrapper)
            self._write_record(record.replaced(entry))
            self._known[entry.id] = secret
            return entry.id, secret

    def refuse_destroyed(self, names: Iterable[KeyName]) -> None:
        """Raise a KeyDestroyedError if one of these keys was destroyed."""
        record = read_shredding(self.folder)
        for entry in map(record.last, names):
            if entry and entry.destroyed:
                raise KeyDestroyedError(entry, _UNREADABLE)

    def find(self, identity: str, name: KeyName) -> bytes:
        """Return the key with this id for decryption; its name must be `name`."""
        entry = next((key for key in read_shredding(self.folder).keys if key.id == identity), None)
        if entry is None or entry.name != name:
            raise DataError(
                f"the key of {name} does not exist",
                file=self.folder,
                value=identity,
                hint="set shredding.keys to the folder of keys that was used for encryption",
            )
        if entry.destroyed:
            raise KeyDestroyedError(entry, _UNREADABLE)
        if identity not in self._known:
            self._known[identity] = self._unwrap(entry, self.wrapper)
        return self._known[identity]

    def destroy(
        self, lineage: str, modalities: tuple[str, ...], kinds: tuple[KeyKind, ...], reason: str
    ) -> tuple[KeyEntry, ...]:
        """Destroy the keys of these modalities in a lineage; return their entries, also those destroyed before."""
        with self._locked():
            record = read_shredding(self.folder)
            chosen = [key.id for key in record.of(lineage, modalities, kinds)]
            known = {key.name.modality for key in record.keys if key.id in chosen}
            if missing := [modality for modality in modalities if modality not in known]:
                existing = ", ".join(str(key.name) for key in record.keys) or "none"
                problem = f"the lineage {lineage} never had a key of {missing[0]}"
                raise UsageError(problem, file=self.folder / RECORD, hint=f"existing keys: {existing}")
            for key in record.keys:
                if key.id in chosen and key.destroyed is None:
                    begun = Destruction(reason=reason, requested=now(), done=None)
                    record = record.replaced(key.model_copy(update={"destroyed": begun}))
            self._write_record(record)
            for key in record.keys:
                if key.id not in chosen:
                    continue
                self._known.pop(key.id, None)
                for file in (self._file(key.id), *self.folder.glob(f".{key.id}.json.partial.*")):
                    overwrite_and_remove(file)
                if key.destroyed and key.destroyed.done is None:
                    ended = key.destroyed.model_copy(update={"done": now()})
                    record = record.replaced(key.model_copy(update={"destroyed": ended}))
            self._write_record(record)
            return tuple(key for key in record.keys if key.id in chosen)

    def rewrap(self, wrapper: Wrapper) -> int:
        """Wrap all existing keys with `wrapper`; return their number. If killed, it can be run again."""
        with self._locked():
            living = [key for key in read_shredding(self.folder).keys if not key.destroyed]
            for entry in living:
                try:
                    self._unwrap(entry, wrapper)
                except UnwrapError:
                    self._write_key(entry, self._unwrap(entry, self.wrapper), wrapper)
            self.wrapper = wrapper
            return len(living)

    def _file(self, identity: str) -> Path:
        return self.folder / f"{identity}.json"

    def _write_key(self, entry: KeyEntry, secret: bytes, wrapper: Wrapper) -> None:
        wrapped = wrapper.wrap(secret, _context(entry))
        key = WrappedKey(id=entry.id, name=entry.name, wrapped=b64encode(wrapped).decode())
        write_file(self._file(entry.id), key.to_json(), mode=0o600)

    def _unwrap(self, entry: KeyEntry, wrapper: Wrapper) -> bytes:
        file = self._file(entry.id)
        key = WrappedKey.read(file, "wrapped data key", "restore the folder of keys (shredding.keys)")
        try:
            wrapped = b64decode(key.wrapped, validate=True)
        except ValueError as error:
            raise DataError("the wrapped data key is damaged", file=file, key="wrapped") from error
        secret = wrapper.unwrap(wrapped, _context(entry))
        if key_id(secret) != entry.id:
            raise DataError("the wrapped data key does not match its id", file=file, value=entry.id)
        return secret

    def _write_record(self, record: ShreddingRecord) -> None:
        write_file(self.folder / RECORD, record.to_bytes())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.folder, wait=True):
            yield


def overwrite_and_remove(file: Path) -> None:
    """Overwrite a file in place with random bytes, sync it, remove it and sync its folder; it may be missing."""
    try:
        with file.open("r+b", buffering=0) as stream:
            stream.write(secrets.token_bytes(os.fstat(stream.fileno()).st_size))
            os.fsync(stream.fileno())
        file.unlink()
    except FileNotFoundError:
        return
    sync(file.parent)


def _context(entry: KeyEntry) -> dict[str, str]:
    return {"id": entry.id, **entry.name.model_dump()}
