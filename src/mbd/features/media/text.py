"""Transcripts to vectors: the mean of the last hidden state over all tokens of the text (768 for BERT base).

One text at a time, so there is no padding and nothing to mask. A text longer than the encoder can read is cut there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch

from mbd.features.media.encoders import Loaded
from mbd.features.media.frozen import load_model, load_tokenizer, one_thread
from mbd.tensors import Array


@contextmanager
def loaded(folder: Path, key: str) -> Iterator[Loaded]:
    """Load the tokenizer and the model in `folder`."""
    tokenizer = load_tokenizer(folder, key)
    model = load_model(folder, key, "input_ids", unused=("pooler.",))
    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 2**31)
    one_at_a_time = Lock()  # a tokenizer sets its truncation on itself

    def encode(text: str) -> Array:
        with one_at_a_time:
            tokens = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
        with torch.inference_mode():
            vector: Array = model(**tokens).last_hidden_state[0].mean(dim=0).numpy()
        return vector

    with one_thread():
        yield Loaded(decode=str, encode=encode)
