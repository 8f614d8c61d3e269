"""The arithmetic of damage that raw media and vectors share."""

import numpy as np

from mbd.tensors import Array


def gaussian_blur(array: Array, deviation: float, axis: int) -> Array:
    """Return `array` convolved along `axis` with exp(−i²/2σ²), cut off at 4σ and normalised, in its float type.

    Beyond its ends the array continues as its mirror image; with that every entry's weights add up to one over all
    outputs, so the blur keeps the mean. A deviation of zero changes nothing.
    """
    values = array.astype(np.result_type(array, np.float32))
    if not deviation:
        return values
    radius = int(np.ceil(4 * deviation))
    kernel = np.exp(-0.5 * (np.arange(radius + 1) / deviation) ** 2)
    kernel = (kernel / (2 * kernel.sum() - kernel[0])).astype(values.dtype)
    axis = axis % array.ndim
    padded = np.pad(values, [(radius, radius) if a == axis else (0, 0) for a in range(array.ndim)], mode="symmetric")

    def shifted(by: int) -> Array:
        at = tuple(slice(radius + by, radius + by + n) if a == axis else slice(None) for a, n in enumerate(array.shape))
        view: Array = padded[at]
        return view

    blurred: Array = kernel[0] * values
    pair = np.empty_like(values)
    for distance in range(1, radius + 1):
        np.add(shifted(-distance), shifted(distance), out=pair)
        pair *= kernel[distance]
        blurred += pair
    return blurred


def with_noise(signals: Array, snr_db: float, rng: np.random.Generator) -> Array:
    """Add to each row white Gaussian noise of exactly the power ‖x‖² / 10^(snr/10); a silent row stays silent."""
    noise = rng.standard_normal(signals.shape)
    power, drawn = (np.square(x, dtype=np.float64).sum(axis=-1, keepdims=True) for x in (signals, noise))
    noise *= np.sqrt(power / (np.maximum(drawn, np.finfo(np.float64).tiny) * 10 ** (snr_db / 10)))
    noisy: Array = (signals + noise).astype(np.result_type(signals, np.float32), copy=False)
    return noisy


def share_mask(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> Array:
    """Choose round(share·columns) entries in each row of a matrix of this shape, at least one unless the share is 0."""
    _, columns = shape
    count = max(round(share * columns), int(share > 0 and columns > 0))
    chosen = np.zeros(shape, dtype=bool)
    if count:
        np.put_along_axis(chosen, np.argpartition(rng.random(shape), count - 1, axis=1)[:, :count], True, axis=1)
    return chosen


def local_order(shape: tuple[int, ...], distance: int, rng: np.random.Generator) -> Array:
    """Return for each row of a matrix of this shape a random order of its columns, none further than `distance` away.

    Column i gets the key i + u with u uniform in [0, distance + 1), and keys are sorted: what is more than
    `distance` places further right has a greater key.
    """
    keys = np.arange(shape[1]) + (distance + 1) * rng.random(shape)
    return keys.argsort(axis=1, kind="stable")
