"""A vector is a function of the content and of everything in the encoder's digest; the cache keeps no other."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from transformers import AutoModel, AutoTokenizer, SegformerConfig, SegformerModel, T5Config, T5Model

from mbd.errors import DataError, UsageError
from mbd.features.media.decoding import read_frames
from mbd.features.media.encoders import (
    Content,
    Encoder,
    MediaDamage,
    VectorCache,
    digest_of_text,
    digests_of_files,
    encoder_of,
    extract,
)
from mbd.features.media.frozen import load_preparation
from mbd.params.features import MediaSettings
from mbd.tensors import Array
from tests.features.media.build import (
    moving_colours,
    tone,
    write_text_encoder,
    write_video,
    write_visual_encoder,
    write_wav,
)
from tests.refusals import refused

TEXTS = ["good", "The film was bad", "a, b, c.", "really good film really", "zebra"]


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> MediaSettings:
    folder = tmp_path_factory.mktemp("encoders")
    return MediaSettings(
        text_encoder=str(write_text_encoder(folder / "text")),
        visual_encoder=str(write_visual_encoder(folder / "visual")),
        frames=3,
    )


def texts(values: list[str]) -> list[Content]:
    return [Content(text, digest_of_text(text), Path("t.csv"), f"line {k + 2}") for k, text in enumerate(values)]


def files(*paths: Path, needed: bool = True) -> list[Content]:
    digests = digests_of_files(paths)
    return [Content(path, digests[path], Path("t.csv"), "line 2, column video", needed) for path in paths]


def test_text_is_the_mean_over_the_tokens_of_a_padded_batch(params: MediaSettings, tmp_path: Path) -> None:
    found = np.stack(extract(encoder_of("text", params), texts(TEXTS), tmp_path))
    tokenizer, model = (
        AutoTokenizer.from_pretrained(params.text_encoder),
        AutoModel.from_pretrained(params.text_encoder),
    )
    with torch.no_grad():
        batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    np.testing.assert_allclose(found, ((hidden * mask).sum(1) / mask.sum(1)).numpy(), atol=1e-5)
    assert found.dtype == np.float32


def test_a_text_is_cut_where_the_encoder_ends(params: MediaSettings, tmp_path: Path) -> None:
    long = " ".join(["good"] * 30)
    whole, cut = extract(encoder_of("text", params), texts([long, long + " bad bad bad"]), tmp_path)
    np.testing.assert_array_equal(whole, cut)


def test_visual_is_the_mean_of_the_pooled_frames(params: MediaSettings, tmp_path: Path) -> None:
    clip = write_video(tmp_path / "v.mp4", moving_colours(30))
    (found,) = extract(encoder_of("visual", params), files(clip), tmp_path / "cache")
    model = AutoModel.from_pretrained(params.visual_encoder).eval()
    with torch.no_grad():
        prepare = load_preparation(Path(params.visual_encoder), "key")
        pooled = model(**prepare(read_frames(clip, 3))).pooler_output.flatten(1)
    assert found.shape == (20,)
    np.testing.assert_allclose(found, pooled.mean(0).numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_neighbours_workers_and_threads_do_not_move_a_bit(params: MediaSettings, tmp_path: Path, threads: int) -> None:
    clips = [write_video(tmp_path / f"{k}.mp4", moving_colours(40 * k), tone(100 + k, 0.5)) for k in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for encoder, contents in (
            (encoder_of("text", params), texts(TEXTS)),
            (encoder_of("visual", params), files(*clips)),
            (encoder_of("audio", params), files(*clips)),
        ):
            together = extract(encoder, contents, tmp_path / "together", workers=3)
            alone = [extract(encoder, [content], tmp_path / "alone", workers=1)[0] for content in contents[::-1]]
            assert np.stack(together).tobytes() == np.stack(alone[::-1]).tobytes()
            assert len({vector.tobytes() for vector in together}) == len(contents)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_the_digest_covers_weights_configuration_sampling_and_damage(params: MediaSettings, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(params.visual_encoder, tmp_path / "changed"))
    (changed / "preprocessor_config.json").write_text('{"size": 64, "do_normalize": false}')
    encoder = encoder_of("visual", params)
    others = [
        encoder_of("text", params),
        encoder_of("audio", params),
        encoder_of("audio", params.model_copy(update={"sample_rate": 8000})),
        encoder_of("visual", params.model_copy(update={"frames": 4})),
        encoder_of("visual", params.model_copy(update={"visual_encoder": str(changed)})),
        encoder.damaged(MediaDamage("blur 1", lambda frames, _: frames)),
        encoder.damaged(MediaDamage("blur 2", lambda frames, _: frames)),
    ]
    assert len({encoder.digest, *(other.digest for other in others)}) == 8
    copied = shutil.copytree(params.visual_encoder, tmp_path / "copied")
    assert encoder_of("visual", params.model_copy(update={"visual_encoder": str(copied)})).digest == encoder.digest
    assert encoder_of("visual", params.model_copy(update={"workers": 7, "cache": "x"})).digest == encoder.digest


def test_damage_is_done_between_decoding_and_encoding(params: MediaSettings, tmp_path: Path) -> None:
    clip = write_video(tmp_path / "v.mp4", moving_colours(30), tone(200, 0.5))
    seen: dict[str, tuple[object, str]] = {}

    def remember(name: str, result: object) -> MediaDamage:
        def apply(raw: object, digest: str) -> object:
            seen[name] = (raw, digest)
            return result

        return MediaDamage(name, apply)

    def vectors(encoder: Encoder, content: list[Content], damage: MediaDamage) -> tuple[Array, Array]:
        plain = extract(encoder, content, tmp_path / "cache")
        return plain[0], extract(encoder.damaged(damage), content, tmp_path / "cache")[0]

    good, bad = texts(["good film", "bad film"])
    plain, damaged = vectors(encoder_of("text", params), [good], remember("text", "bad film"))
    np.testing.assert_array_equal(damaged, extract(encoder_of("text", params), [bad], tmp_path / "cache")[0])
    assert (plain != damaged).any()
    assert seen["text"] == ("good film", good.digest)

    (video,) = files(clip)
    black = np.zeros((3, 48, 64, 3), np.uint8)
    plain, damaged = vectors(encoder_of("visual", params), [video], remember("frames", black))
    assert (plain != damaged).any()
    frames, digest = seen["frames"]
    np.testing.assert_array_equal(frames, read_frames(clip, 3))
    assert digest == video.digest

    plain, damaged = vectors(encoder_of("audio", params), [video], remember("waveform", np.zeros(16000, np.float32)))
    assert (plain != damaged).any()
    waveform = seen["waveform"][0]
    assert isinstance(waveform, np.ndarray)
    assert (waveform.ndim, waveform.dtype) == (1, np.float32)


def test_what_is_absent_is_remembered_and_an_error_only_where_it_is_needed(
    params: MediaSettings, tmp_path: Path
) -> None:
    silent, sound = write_video(tmp_path / "v.mp4", moving_colours(30)), write_wav(tmp_path / "s.wav", tone(99, 0.2))
    found = extract(encoder_of("audio", params), [None, *files(silent, sound, needed=False)], tmp_path / "cache")
    assert [vector.size for vector in found] == [0, 0, 74]
    for _ in range(2):
        with refused(DataError, match="no audio", key="line 2, column video", value=silent):
            extract(encoder_of("audio", params), files(silent), tmp_path / "cache")


def test_encoders_that_cannot_do_it_are_refused(params: MediaSettings, tmp_path: Path) -> None:
    t5 = Path(shutil.copytree(params.text_encoder, tmp_path / "t5"))
    T5Model(T5Config(vocab_size=70, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)).save_pretrained(t5)
    with refused(UsageError, value=f"{t5}: T5Model"):
        extract(encoder_of("text", params.model_copy(update={"text_encoder": str(t5)})), texts(["good"]), tmp_path)
    clip = files(write_video(tmp_path / "v.mp4", moving_colours(30)))
    swapped = params.model_copy(update={"visual_encoder": params.text_encoder})
    with refused(UsageError, value=f"{params.text_encoder}: BertModel"):
        extract(encoder_of("visual", swapped), clip, tmp_path)
    segformer = SegformerModel(SegformerConfig(hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], decoder_hidden_size=8))
    segformer.save_pretrained(tmp_path / "segformer")
    with refused(UsageError, match="no pooled output"):
        extract(
            encoder_of("visual", params.model_copy(update={"visual_encoder": str(tmp_path / "segformer")})),
            clip,
            tmp_path,
        )


VECTORS = arrays.arrays(np.float32, st.integers(0, 8), elements=st.floats(width=32))


@settings(deadline=None, max_examples=40)
@given(VECTORS, st.integers(0, 10_000), st.integers(1, 255))
def test_an_entry_comes_back_bit_for_bit_and_an_altered_one_not_at_all(vector: Array, place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = VectorCache(Path(folder), "encoder")
        assert cache.get("content") is None
        cache.put("content", vector)
        found = cache.get("content")
        assert found is not None
        assert found.tobytes() == vector.tobytes()
        (file,) = Path(folder).rglob("*.vector")
        data = bytearray(file.read_bytes())
        data[place % len(data)] ^= change
        file.write_bytes(data)
        assert cache.get("content") is None


def test_an_entry_that_is_cut_off_or_under_a_wrong_name_is_not_trusted(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "encoder")
    cache.put("a", np.arange(4, dtype=np.float32))
    (first,) = tmp_path.rglob("*.vector")
    cache.put("b", np.ones(4, np.float32))
    (second,) = set(tmp_path.rglob("*.vector")) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get("b") is None
    first.write_bytes(first.read_bytes()[:-4])
    assert cache.get("a") is None
    first.write_bytes(b"")
    assert cache.get("a") is None


def test_another_encoder_finds_nothing(tmp_path: Path) -> None:
    VectorCache(tmp_path, "one").put("content", np.ones(3, np.float32))
    assert VectorCache(tmp_path, "other").get("content") is None
