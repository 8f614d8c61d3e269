"""The files of a batch in the store, from which any worker can finish it: each under its digest.

What is to be published goes where published files are; the rest into the private part, and encrypted what may name
persons.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag

from mbd.errors import DataError
from mbd.files import STEP_FILE, file_digests, sha256_file, write_file
from mbd.formats.deletion import DELETION
from mbd.formats.layout import object_name
from mbd.formats.request import Files
from mbd.formats.statement import SUBJECTS
from mbd.storage.store import Store
from mbd.trust.lineage_key import LineageKey


@dataclass(frozen=True)
class BatchFiles:
    """Where the files of batches are kept."""

    published: Store
    private: Store
    key: LineageKey

    def keep(self, folder: Path) -> Files:
        """Put a step's folder into the store, file by file."""
        files = {**file_digests(folder), STEP_FILE: sha256_file(folder / STEP_FILE)}
        for name, digest in files.items():
            store, place = self._place(name, digest)
            sealed = name == DELETION
            store.create(place, self.key.seal(digest, (folder / name).read_bytes()) if sealed else folder / name)
        return Files(files=files)

    def fetch(self, kept: Files, folder: Path) -> None:
        """Bring the files to a folder, in place of what is there; DataError if one is missing or damaged."""
        if folder.exists():
            shutil.rmtree(folder)
        for name, digest in kept.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            store, place = self._place(name, digest)
            if name == DELETION:
                write_file(folder / name, self._unsealed(store, place, digest))
            else:
                store.fetch(place, folder / name, sha256=digest)

    def _place(self, name: str, digest: str) -> tuple[Store, str]:
        if name in SUBJECTS:
            return self.published, object_name(digest)
        return self.private, f"batches/files/{digest}"

    def _unsealed(self, store: Store, place: str, digest: str) -> bytes:
        try:
            content = self.key.unseal(digest, store.read(place))
        except (InvalidTag, ValueError) as error:
            raise DataError("a file of the batch is damaged", file=place) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError("a file of the batch has another digest", file=place, value=digest)
        return content
