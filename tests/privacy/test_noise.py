"""Noise that is Gaussian and belongs to its key; any two clipped vectors are within the sensitivity."""

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, kurtosis

from mbd.deletion.reference import distances
from mbd.errors import UsageError
from mbd.privacy import noise
from mbd.privacy.noise import NoiseKey, clip, commit, of_ball, one_time_key
from mbd.tensors import Array
from tests.refusals import refused

KEY, SALT = bytes(range(32)), bytes(range(32, 64))
SECRETS = st.binary(min_size=32, max_size=32)


def test_moments_and_distribution_are_normal() -> None:
    z = NoiseKey(KEY, SALT).gaussian("w", (1_000_000,))
    assert abs(z.mean()) < 0.005
    assert z.var() == pytest.approx(1, abs=0.01)
    assert abs(kurtosis(z)) < 0.03
    assert 4.5 < np.abs(z).max() < 7
    assert kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.005


@settings(deadline=None, max_examples=20)
@given(SECRETS, st.text(max_size=20), st.lists(st.integers(0, 7), max_size=3))
def test_the_same_key_and_name_give_the_same_numbers(key: bytes, name: str, shape: list[int]) -> None:
    one, same = (NoiseKey(key, SALT).gaussian(name, tuple(shape)) for _ in range(2))
    assert one.shape == tuple(shape)
    assert one.dtype == np.float64
    assert np.array_equal(one, same)
    assert np.isfinite(one).all()


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.text(max_size=20), min_size=2, max_size=2, unique=True),
    st.lists(SECRETS, min_size=2, max_size=2, unique=True),
)
def test_other_names_and_other_keys_give_other_numbers(names: list[str], keys: list[bytes]) -> None:
    draws = [NoiseKey(key, SALT).gaussian(name, (1000,)) for key in keys for name in names]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    key = NoiseKey(KEY, SALT)
    assert np.array_equal(key.gaussian("w", (7,)), key.gaussian("w", (600_000,))[:7])


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NoiseKey(KEY, SALT).gaussian("w", (1001,))
    monkeypatch.setattr(noise, "_CHUNK", 10)
    assert np.array_equal(NoiseKey(KEY, SALT).gaussian("w", (1001,)), whole)


def test_the_stream_is_chacha20() -> None:
    words = np.frombuffer(Cipher(algorithms.ChaCha20(KEY, bytes(16)), mode=None).encryptor().update(bytes(32)), "<u8")
    assert noise._Stream(KEY).uniforms(4) == pytest.approx(words / 2.0**64, abs=2.0**-52)


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_the_extremes_of_the_stream_are_finite(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Extreme:
        def update(self, data: bytes) -> bytes:
            return word.to_bytes(8, "little") * (len(data) // 8)

    stream = noise._Stream(KEY)
    monkeypatch.setattr(stream, "_cipher", Extreme())
    uniforms = stream.uniforms(4)
    assert ((uniforms > 0) & (uniforms <= 1)).all()
    assert np.isfinite(noise._box_muller(uniforms)).all()


@settings(deadline=None, max_examples=50)
@given(SECRETS, SECRETS, st.integers(0, 255))
def test_a_commitment_opens_with_the_right_key_and_salt_only(key: bytes, salt: bytes, bit: int) -> None:
    def flipped(secret: bytes) -> bytes:
        return (int.from_bytes(secret, "big") ^ (1 << bit)).to_bytes(32, "big")

    commitment = NoiseKey(key, salt).commitment
    assert commitment == commit(key, salt)
    assert commitment != commit(flipped(key), salt)
    assert commitment != commit(key, flipped(salt))
    assert key == salt or commitment != commit(salt, key)


def test_fresh_keys_differ() -> None:
    assert NoiseKey.fresh().commitment != NoiseKey.fresh().commitment


def test_a_key_is_gone_after_use() -> None:
    injected = NoiseKey(KEY, SALT)
    with one_time_key(key=injected) as key:
        key.gaussian("w", (2,))
        buffer = key._key
        assert bytes(buffer) == KEY
    assert not any(buffer)
    assert key.destroyed
    assert key.commitment == commit(KEY, SALT)
    with pytest.raises(ValueError, match="destroyed"):
        key.gaussian("w", (2,))


def test_a_key_is_gone_after_a_failure_too() -> None:
    injected = NoiseKey(KEY, SALT)
    with pytest.raises(RuntimeError), one_time_key(key=injected):
        raise RuntimeError
    assert injected.destroyed


def test_escrow_keeps_every_key_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "escrow.jsonl"
    commitments = []
    for _ in range(2):
        with one_time_key(file) as key:
            commitments.append(key.commitment)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [entry["commitment"] for entry in kept] == commitments
    for entry in kept:
        assert entry["commitment"] == commit(bytes.fromhex(entry["key"]), bytes.fromhex(entry["salt"]))


def test_an_escrow_file_that_others_can_read_is_refused_and_not_written(tmp_path: Path) -> None:
    file = tmp_path / "escrow.jsonl"
    file.touch(0o644)
    with refused(UsageError, key="deletion.certified.escrow"), one_time_key(file):
        pass
    assert file.read_bytes() == b""


def tensors(seed: int, scale: float) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"a": (scale * rng.standard_normal((4, 3))).astype(np.float32), "b": scale * rng.standard_normal(5)}


def flat(vector: dict[str, Array]) -> Array:
    return np.concatenate([array.ravel() for array in vector.values()])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 99), st.integers(0, 99), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_any_two_clipped_vectors_are_at_most_the_sensitivity_apart(
    seed: int, other: int, scale: float, other_scale: float, radius: float
) -> None:
    one, two = flat(clip(tensors(seed, scale), radius)), flat(clip(tensors(other, -other_scale), radius))
    assert np.linalg.norm(one) <= radius * (1 + 1e-12)
    assert np.linalg.norm(one - two) <= of_ball(radius).value * (1 + 1e-12)


def test_the_bound_is_reached_by_opposite_vectors() -> None:
    vector = tensors(1, 100.0)
    opposite = {name: -array for name, array in vector.items()}
    apart = np.linalg.norm(flat(clip(vector, 1.5)) - flat(clip(opposite, 1.5)))
    assert apart == pytest.approx(of_ball(1.5).value)


def test_a_short_vector_is_left_as_it_is() -> None:
    vector = tensors(2, 1e-3)
    assert np.array_equal(flat(clip(vector, 1.0)), flat(vector))
    nothing = {"a": np.zeros(3)}
    assert not clip(nothing, 1.0)["a"].any()


def test_the_reason_names_the_radius() -> None:
    assert "C = 0.5" in of_ball(0.5).reason
    assert "2C = 1 " in of_ball(0.5).reason


def test_distances_inside_and_outside_make_up_the_whole() -> None:
    one, two = tensors(3, 1.0), tensors(4, 1.0)
    found = distances(one, two, {"a": np.array([0, 5])})
    difference = (one["a"] - two["a"]).ravel()
    assert found["inside"] == pytest.approx(np.linalg.norm(difference[[0, 5]]), rel=1e-6)
    assert np.hypot(found["inside"], found["outside"]) == pytest.approx(np.linalg.norm(flat(one) - flat(two)), rel=1e-6)
