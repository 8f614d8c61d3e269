"""Keys for tests: real ones, made once for each folder."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import Signer

from mbd.trust.keys import LOG, TRUST, load_signer, make_keys
from mbd.trust.trust_file import Trust, read_trust


@dataclass(frozen=True)
class Keys:
    """A folder of keys."""

    folder: Path

    @property
    def trust(self) -> Trust:
        return read_trust(self.folder / TRUST)

    def signer(self, name: str = "signer") -> Signer:
        return load_signer(f"file:{self.folder / name}.pem")

    @property
    def log(self) -> Signer:
        return self.signer(LOG)


def keys_in(folder: Path, *names: str) -> Keys:
    """Make keys of these holders (by default one, `signer`) and of the log."""
    for name in names or ("signer",):
        make_keys(folder, name)
    return Keys(folder)


def leaf(number: int) -> bytes:
    """Return a leaf that is unlike all others."""
    return hashlib.sha256(b"%d" % number).digest()
