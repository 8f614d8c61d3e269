"""Named random streams: every draw in the system comes from `stream(seed, what, for, …)`.

A stream depends on its seed and names only, so leaving out one modality never moves another one's draws.
"""

import hashlib

import numpy as np


def stream_seed(seed: int, *names: str) -> int:
    """Return 256 bits that belong to `seed` and `names`: SHA-256 of both, each part with its length."""
    parts = [str(seed), *names]
    text = "".join(f"{len(part.encode())}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def stream(seed: int, *names: str) -> np.random.Generator:
    """Return the random generator that belongs to `seed` and `names`."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *names)))
