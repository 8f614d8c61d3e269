"""Small feature data for tests."""

from pathlib import Path

import numpy as np

from mbd.features.rows import Collection, Rows
from mbd.params import load_params
from mbd.steps import features
from mbd.tensors import Array

DIMS = {"text": 5, "audio": 3, "visual": 4}
SIZES = {"train": 24, "valid": 8, "test": 8}


def small_rows(split: str, n: int, dims: dict[str, int] | None = None, classes: int = 0) -> Rows:
    """Rows of random numbers, four to a group."""
    rng = np.random.default_rng([n, classes, len(split)])
    labels: Array = np.arange(n) % classes if classes else rng.uniform(-3, 3, n).astype(np.float32)
    return Rows.of(
        [f"{split}{i // 4}_{i % 4}" for i in range(n)],
        labels,
        {m: rng.standard_normal((n, d), dtype=np.float32) for m, d in (dims or DIMS).items()},
        groups=[f"{split}{i // 4}" for i in range(n)],
    )


def small_collection(classes: int = 0, dims: dict[str, int] | None = None) -> Collection:
    """A collection with train, valid and test."""
    return Collection(
        name="small",
        task="classification" if classes else "regression",
        classes=tuple(f"c{k}" for k in range(classes)),
        splits={split: small_rows(split, n, dims, classes) for split, n in SIZES.items()},
    )


def npz_arrays(collection: Collection) -> dict[str, Array]:
    """The arrays of a collection under their names in an .npz file."""
    arrays: dict[str, Array] = {}
    for split, rows in collection.splits.items():
        arrays |= {f"{split}_ids": rows.ids, f"{split}_labels": rows.labels}
        arrays |= {f"{split}_{m}": x for m, x in rows.features.items()}
    return arrays


def write_npz(path: Path, arrays: dict[str, Array]) -> Path:
    """Write arrays as numpy.savez does."""
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def synthetic_set(folder: Path, *settings: str) -> Path:
    """Write a small synthetic FeatureSet by the real step; settings go on top."""
    small = [
        "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
        "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}",
    ]
    features.run(load_params(None, [*small, *settings]), folder)
    return folder


def shaped_arrays(sizes: dict[str, int] | None = None) -> dict[str, Array]:
    """Arrays of an .npz file: token ids, sequences of float16, images of bytes; all show the label."""
    arrays: dict[str, Array] = {}
    for split, n in (sizes or SIZES).items():
        rng = np.random.default_rng([n, len(split)])
        mood, private = rng.uniform(-2, 2, n), {m: rng.integers(0, 2, n) for m in ("audio", "image")}
        audio = 0.5 * mood[:, None, None] + rng.standard_normal((n, 8, 4))
        audio[:, :, 0] += 2 * private["audio"][:, None] - 1
        image = 128 + 30 * mood[:, None, None, None] + 20 * rng.standard_normal((n, 2, 8, 8))
        image[:, 1, :4] += 40 * (2 * private["image"][:, None, None] - 1)
        arrays |= {
            f"{split}_ids": np.array([f"{split}{i // 4}_{i % 4}" for i in range(n)]),
            f"{split}_labels": mood.astype(np.float32),
            f"{split}_text": rng.integers(0, 20, (n, 6)) + 20 * (mood > 0)[:, None],
            f"{split}_text_lengths": rng.integers(2, 7, n),
            f"{split}_audio": audio.astype(np.float16),
            f"{split}_audio_lengths": rng.integers(2, 9, n),
            f"{split}_image": np.clip(image, 0, 255).astype(np.uint8),
            **{f"{split}_{m}_attribute": values for m, values in private.items()},
        }
    return arrays


def shaped_set(folder: Path, *settings: str, sizes: dict[str, int] | None = None) -> Path:
    """Write a small FeatureSet of token ids, sequences and images by the real step; its source lies beside it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sizes = sizes or {"train": 96, "valid": 32, "test": 64, "calibration": 48}
    file = write_npz(folder.with_suffix(".npz"), shaped_arrays(sizes))
    features.run(load_params(None, [f"features.source.path={file}", *settings]), folder)
    return folder


def mixed_set(folder: Path, *settings: str, sizes: dict[str, int] | None = None) -> Path:
    """Write a small FeatureSet of three classes: token ids, sequences, images and vectors, which have a blank."""
    arrays = shaped_arrays(sizes)
    for split in sizes or SIZES:
        mood = arrays[f"{split}_labels"]
        rng = np.random.default_rng([len(mood), len(split), 4])
        arrays[f"{split}_body sensors"] = (mood[:, None] + rng.standard_normal((len(mood), 5))).astype(np.float32)
        arrays[f"{split}_labels"] = np.array(["calm", "so so", "upset"])[np.digitize(mood, (-0.7, 0.7))]
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = write_npz(folder.with_suffix(".npz"), arrays)
    features.run(load_params(None, [f"features.source.path={file}", *settings]), folder)
    return folder
