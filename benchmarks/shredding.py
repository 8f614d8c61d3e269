"""Claim about shredding: encrypting and decrypting run at half the speed of a plain copy or more.

Each is one file written and synced to disk, in turns with the plain copy, so that all meet the same disk and the same
neighbours. Printed are the medians of wall and CPU time, and the ratio: time of the copy / time of the cipher, turn by
turn. A second line does the same in memory (/dev/shm), where a step's plaintext lies and where no disk hides the work.
"""

import argparse
import io
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mbd.formats.shredding import key_id
from mbd.shredding.cipher import CipherSubject, decrypt, encrypt, read_header
from mbd.shredding.private_folder import SHARED_MEMORY

SUBJECT = CipherSubject(
    name="model.safetensors", lineage="benchmark", kind="models", modalities=("text", "audio", "visual")
)
BLOCK = 1 << 24


def synced(out: Path, write: Callable[[io.BufferedWriter], object]) -> tuple[float, float]:
    """Return wall and CPU time of writing a file and having it on disk."""
    out.unlink(missing_ok=True)
    wall, cpu = time.perf_counter(), time.process_time()
    with out.open("wb") as target:
        write(target)
        target.flush()
        os.fsync(target.fileno())
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(folder: Path, mebibytes: int, repeats: int) -> None:
    keys = [(key_id(key), key) for key in (secrets.token_bytes(32) for _ in SUBJECT.modalities)]
    plain, sealed, out = folder / "plain", folder / "sealed", folder / "out"
    with plain.open("wb") as stream:
        for _ in range(0, mebibytes << 20, BLOCK):
            stream.write(secrets.token_bytes(BLOCK))
    size = plain.stat().st_size

    def copy(target: io.BufferedWriter) -> None:
        shutil.copyfile(plain, target.name)  # by sendfile, within the kernel

    def sealing(target: io.BufferedWriter) -> None:
        with plain.open("rb", buffering=0) as source:
            encrypt(source, target, SUBJECT, keys)

    def opening(target: io.BufferedWriter) -> None:
        with sealed.open("rb", buffering=0) as source:
            decrypt(source, target, read_header(source), [key for _, key in keys])

    synced(sealed, sealing)
    works = {"copy": copy, "encrypt": sealing, "decrypt": opening}
    times = np.array([[synced(out, work) for work in works.values()] for _ in range(repeats)])
    assert out.read_bytes() == plain.read_bytes()
    print(f"{folder}: {size >> 20} MiB, {repeats} turns")
    for index, name in enumerate(works):
        wall, cpu = np.median(times[:, index], axis=0)
        ratio = np.median(times[:, 0] / times[:, index], axis=0)
        print(
            f"  {name:<8} {wall:.3f} s ({size / wall / 1e9:.2f} GB/s), {cpu:.3f} s CPU; "
            f"throughput / plain copy {ratio[0]:.2f} (by CPU time {ratio[1]:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    for parent in (Path.cwd(), SHARED_MEMORY):
        if parent.is_dir():
            with tempfile.TemporaryDirectory(dir=parent, prefix="mbd-benchmark-") as folder:
                measure(Path(folder), options.mebibytes, options.repeats)


if __name__ == "__main__":
    main()
