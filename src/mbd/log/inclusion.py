"""Proof that a leaf is in the log, as a bundle carries it: checked offline, with nothing but the trust file."""

import hashlib
from typing import Annotated

from pydantic import Field

from mbd.errors import VerificationError
from mbd.log.checkpoint import verify_checkpoint
from mbd.log.hashing import leaf_hash
from mbd.log.proof import root_by_inclusion
from mbd.records import Digest, Record
from mbd.trust.trust_file import Logged, Trust


class Inclusion(Record):
    """A leaf's place, and the hashes that lead from it to the root in a signed checkpoint."""

    index: Annotated[int, Field(ge=0, lt=2**53)]
    tree_size: Annotated[int, Field(ge=1, lt=2**53)]
    hashes: tuple[Digest, ...]
    """from the leaf's sibling up (RFC 9162, 2.1.3)"""
    checkpoint: str
    """the first checkpoint that has the leaf, as it was signed"""

    def verify(self, leaf: bytes, trust: Trust) -> Logged:
        """Return where and when `leaf` (:func:`leaf_of`) was logged; VerificationError if this does not prove it."""
        checkpoint = verify_checkpoint(self.checkpoint, trust)
        hashes = [bytes.fromhex(one) for one in self.hashes]
        root = root_by_inclusion(leaf_hash(leaf), self.index, self.tree_size, hashes)
        if checkpoint.size != self.tree_size or root != checkpoint.root:
            raise VerificationError(
                "the certificate is not in the log: the proof does not lead to the root of the checkpoint",
                hint="get the bundle again from where it was published",
            )
        return Logged(self.index, checkpoint.time)


def leaf_of(envelope: bytes) -> bytes:
    """Return what the log keeps of a certificate: the SHA-256 of its envelope, 32 bytes."""
    return hashlib.sha256(envelope).digest()
