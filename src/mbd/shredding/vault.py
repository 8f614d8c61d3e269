"""Encrypted folders, and their plaintext while a step runs.

In an encrypted folder `X.safetensors` is replaced by `X.safetensors.mbdx`. Decrypted, the folder has the same name and
the same bytes as the plain one, so digests, records and steps do not differ. Files of a modality whose key was
destroyed are left out of a FeatureSet; a model with such a key cannot be opened.

    FeatureSet   splits/SPLIT/MODALITY.safetensors   the key of MODALITY (`_rows`: ids, groups and labels)
    model        *.safetensors                       the keys of all modalities that it takes

Other files (manifest, records, metrics) hold no features and no weights and are not encrypted. A folder is a
FeatureSet, a model, or contains several models (seeds).
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mbd.errors import DataError, UsageError, naming
from mbd.files import sync
from mbd.formats.features import MANIFEST, Manifest
from mbd.formats.files import MODEL
from mbd.formats.model import ModelRecord
from mbd.formats.shredding import KeyName
from mbd.outputs import whole_folder, writer_of
from mbd.params.operations import ShreddingSettings
from mbd.shredding.cipher import CipherSubject, decrypt, encrypt, read_header
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.private_folder import private_folder, refuse_without_room

SUFFIX = ".mbdx"
_TENSORS = ".safetensors"


@dataclass(frozen=True)
class Unit:
    """A FeatureSet or a model, encrypted or not."""

    folder: Path
    record: Manifest | ModelRecord
    lineage: str

    def plain(self) -> list[Path]:
        """Return the plain files that would be encrypted."""
        return sorted(self.folder.rglob(f"*{_TENSORS}"))

    def encrypted(self) -> list[Path]:
        """Return the encrypted files."""
        return sorted(self.folder.rglob(f"*{SUFFIX}"))

    def subject(self, file: Path) -> CipherSubject:
        """Return the subject of a file, given its plain or encrypted path."""
        name = file.relative_to(self.folder).as_posix().removesuffix(SUFFIX)
        if isinstance(self.record, ModelRecord):
            return CipherSubject(name=name, lineage=self.lineage, kind="models", modalities=tuple(self.record.inputs))
        return CipherSubject(name=name, lineage=self.lineage, kind="features", modalities=(Path(name).stem,))


def units(folder: Path, lineage: str | None = None) -> list[Unit]:
    """Return the FeatureSets and models in a folder; `lineage` replaces the name of their data."""
    ordered = sorted(_read(folder, lineage), key=lambda unit: unit.folder)
    if not ordered:
        raise DataError(
            "this is neither a FeatureSet nor a model folder",
            file=folder,
            hint=f"give a folder with a {MANIFEST} or a {MODEL} in it",
        )
    for inner in ordered:
        if outer := next((unit for unit in ordered if unit.folder in inner.folder.parents), None):
            raise DataError("a FeatureSet or model is inside another one", file=inner.folder, value=outer.folder)
    return ordered


def _read(folder: Path, lineage: str | None) -> Iterator[Unit]:
    for file in folder.rglob(MANIFEST):
        manifest = Manifest.read(file, "manifest of a FeatureSet", "`mbd features --out DIR` makes one")
        yield Unit(file.parent, manifest, lineage or manifest.name)
    for file in folder.rglob(MODEL):
        model = ModelRecord.read(file, "model record (model.json)", "`mbd train` makes a model folder")
        yield Unit(file.parent, model, lineage or model.data.name)


Warn = Callable[[str], object]
"""gets a message for the user about files that are left out"""


def is_encrypted(folder: Path) -> bool:
    """Return whether a folder contains encrypted files."""
    return folder.is_dir() and any(folder.rglob(f"*{SUFFIX}"))


def encrypt_folder(folder: Path, out: Path, keyring: Keyring, lineage: str | None = None) -> int:
    """Encrypt a folder to `out`; return the number of encrypted files."""
    with whole_folder(out, writer_of(folder) or "shred") as new:
        secret = {file: unit for unit in units(folder, lineage) for file in unit.plain()}
        shutil.copytree(folder, new, dirs_exist_ok=True, ignore=_but(lambda file: file not in secret))
        for file, unit in secret.items():
            _encrypt_file(unit, file, new / f"{file.relative_to(folder)}{SUFFIX}", keyring)
    return len(secret)


def encrypt_in_place(folder: Path, keyring: Keyring, lineage: str | None = None) -> int:
    """Encrypt the files of a folder in place; return their number. If killed, it can be run again.

    A plain file is removed once the encrypted file is on disk and was read back.
    """
    count = 0
    for unit in units(folder, lineage):
        for file in unit.plain():
            sealed = file.with_name(file.name + SUFFIX)
            partial = file.with_name(f".{sealed.name}.partial")
            _encrypt_file(unit, file, partial, keyring)
            partial.replace(sealed)
            with Path(os.devnull).open("wb") as nowhere:
                _decrypt_file(unit, sealed, nowhere, keyring)
            file.unlink()
            sync(file.parent)
            count += 1
    return count


def decrypt_folder(
    folder: Path, out: Path, keyring: Keyring, lineage: str | None = None, warn: Warn = lambda _: None
) -> int:
    """Decrypt a folder into the empty folder `out`; return the number of encrypted files."""
    sealed = {file: unit for unit in units(folder, lineage) for file in unit.encrypted()}
    interrupted = f"{SUFFIX}.partial"  # what encrypt_in_place has left
    left = sealed.keys() | {file.with_suffix("") for file in sealed}
    stays = _but(lambda file: file not in left and not file.name.endswith(interrupted))
    shutil.copytree(folder, out, dirs_exist_ok=True, ignore=stays)
    pairs = [(unit, file, out / file.relative_to(folder).with_suffix("")) for file, unit in sealed.items()]
    _decrypt_files(pairs, folder, keyring, warn)
    return len(sealed)


def decrypt_in_place(
    folder: Path, keyring: Keyring, lineage: str | None = None, warn: Warn = lambda _: None
) -> set[str]:
    """Decrypt the files of a FeatureSet in place; return the modalities that are left out."""
    pairs = [(unit, file, file.with_suffix("")) for unit in units(folder, lineage) for file in unit.encrypted()]
    gone = _decrypt_files(pairs, folder, keyring, warn)
    for _, file, _ in pairs:
        file.unlink()
    return {name.modality for name in gone}


def decrypted(
    folder: Path, out: Path, keyring: Keyring, lineage: str | None = None, warn: Warn = lambda _: None
) -> int:
    """Decrypt a folder to `out`, completely or not at all."""
    with whole_folder(out, writer_of(folder) or "shred") as new:
        return decrypt_folder(folder, new, keyring, lineage, warn)


@contextmanager
def opened(folder: Path, settings: ShreddingSettings, warn: Warn = lambda _: None) -> Iterator[Path]:
    """Within: the folder itself, or its plaintext in a private temporary folder if it is encrypted."""
    if not is_encrypted(folder):
        yield folder
        return
    _refuse_disabled(folder, settings)
    keyring = Keyring.of(settings)
    with private_folder(settings.temporary) as private:
        refuse_without_room(private, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
        plain = private / folder.resolve().name
        decrypt_folder(folder, plain, keyring, settings.lineage, warn)
        with naming_destroyed_keys(plain, folder, keyring, settings.lineage):
            yield plain


def made_plain(settings: ShreddingSettings, warn: Warn = lambda _: None) -> Callable[[Path], set[str]]:
    """Return a function that decrypts a fetched folder in place and returns the modalities that are left out."""

    def prepare(folder: Path) -> set[str]:
        if not is_encrypted(folder):
            return set()
        _refuse_disabled(folder, settings)
        return decrypt_in_place(folder, Keyring.of(settings), settings.lineage, warn)

    return prepare


def _refuse_disabled(folder: Path, settings: ShreddingSettings) -> None:
    if not settings.enabled:
        raise UsageError(
            "the folder is encrypted",
            file=folder,
            hint="set shredding.enabled=true, shredding.keys and shredding.wrapper; or `mbd shred decrypt` it",
        )


@contextmanager
def naming_destroyed_keys(plain: Path, origin: Path, keyring: Keyring, lineage: str | None = None) -> Iterator[None]:
    """Within: an error about a missing file of `plain` names the destroyed key and the file in `origin`."""
    try:
        yield
    except DataError as error:
        missing = Path(error.file or "")
        if missing.is_relative_to(plain) and not missing.exists():
            for unit in units(plain, lineage):
                if missing.is_relative_to(unit.folder):
                    with naming(origin / f"{missing.relative_to(plain)}{SUFFIX}"):
                        keyring.refuse_destroyed(unit.subject(missing).key_names)
        raise


def _decrypt_files(
    pairs: Sequence[tuple[Unit, Path, Path]], folder: Path, keyring: Keyring, warn: Warn
) -> dict[KeyName, KeyDestroyedError]:
    """Decrypt pairs of encrypted and plain paths; return the destroyed keys; their files are left out."""
    gone: dict[KeyName, KeyDestroyedError] = {}
    for unit, file, plain in pairs:
        try:
            with _new_file(plain) as target:
                _decrypt_file(unit, file, target, keyring)
        except KeyDestroyedError as error:
            plain.unlink()
            if error.entry.name.kind == "models":
                raise
            gone[error.entry.name] = error
    for destroyed in gone.values():
        warn(f"{destroyed.problem}; its files are left out of {folder}")
    return gone


def _encrypt_file(unit: Unit, file: Path, out: Path, keyring: Keyring) -> None:
    subject = unit.subject(file)
    with naming(file):
        keys = [keyring.make(name) for name in subject.key_names]
    with file.open("rb", buffering=0) as source, out.open("wb") as target:
        encrypt(source, target, subject, keys)
        target.flush()
        os.fsync(target.fileno())


def _decrypt_file(unit: Unit, file: Path, target: BinaryIO, keyring: Keyring) -> None:
    subject = unit.subject(file)
    with naming(file), file.open("rb", buffering=0) as source:
        header = read_header(source)
        stated = header[0].subject
        if stated != subject:
            raise DataError(
                "the encrypted file belongs to another place",
                value=f"{stated.name} of {', '.join(stated.modalities)} in the lineage {stated.lineage}",
                hint=f"expected {subject.name} of {', '.join(subject.modalities)} in {subject.lineage}; "
                "fetch it again, or set shredding.lineage as when it was encrypted",
            )
        named = zip(header[0].keys, subject.key_names, strict=True)
        keys = [keyring.find(identity, name) for identity, name in named]
        decrypt(source, target, header, keys)


def _new_file(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _but(copied: Callable[[Path], bool]) -> Callable[[str, list[str]], list[str]]:
    """Return an `ignore` function for `copytree` that skips files for which `copied` is false."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not copied(Path(folder) / name)]

    return ignored
