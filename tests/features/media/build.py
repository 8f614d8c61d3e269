"""Short clips, and encoders of the real architectures that are tiny."""

import csv
from pathlib import Path

import av
import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast, ResNetConfig, ResNetModel

from mbd.tensors import Array

RATE = 16000
FRAME_RATE = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = ["good", "bad", "film", "the", "was", "a", "##ly", ",", "."]


def tone(hertz: float, seconds: float) -> Array:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)).astype(np.float32)


def moving_colours(start: int, count: int = 12, height: int = 48, width: int = 64) -> Array:
    """Frames whose colour changes from one to the next: frame k has red 12·k + start."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[..., 0] = (start + 12 * np.arange(count))[:, None, None]
    frames[..., 1] = np.linspace(0, 255, width)[None, None, :]
    frames[..., 2] = 2 * start % 256
    return frames


def write_video(path: Path, frames: Array, sound: Array | None = None, codec: str = "mpeg4") -> Path:
    """Write a clip, with a sound track if there is `sound`."""
    with av.open(str(path), "w") as container:
        pictures = container.add_stream(codec, rate=FRAME_RATE)
        pictures.width, pictures.height, pictures.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        pictures.bit_rate = 4_000_000
        track = None if sound is None else container.add_stream("aac", rate=RATE, layout="mono")
        for frame in frames:
            container.mux(pictures.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(pictures.encode())
        if sound is not None and track is not None:
            container.mux(track.encode(_audio_frame(sound, "fltp")))
            container.mux(track.encode())
    return path


def write_wav(path: Path, sound: Array) -> Path:
    with av.open(str(path), "w") as container:
        track = container.add_stream("pcm_f32le", rate=RATE, layout="mono")
        container.mux(track.encode(_audio_frame(sound, "flt")))
        container.mux(track.encode())
    return path


def _audio_frame(sound: Array, sample_format: str) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(sound[None], format=sample_format, layout="mono")
    frame.sample_rate, frame.pts = RATE, 0
    return frame


def write_text_encoder(folder: Path, hidden: int = 16) -> Path:
    """A BERT with two layers and a WordPiece vocabulary of letters and a few words; it reads 32 tokens."""
    folder.mkdir(parents=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *dict.fromkeys(_WORDS)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True, model_max_length=32)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def write_visual_encoder(folder: Path) -> Path:
    """A ResNet with basic layers, as ResNet-18 has, but narrow."""
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 12, 20], depths=[2, 2, 2, 2], layer_type="basic")
    ResNetModel(config).save_pretrained(folder)
    return folder


def write_table(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
