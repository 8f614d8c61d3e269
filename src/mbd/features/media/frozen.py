"""Frozen transformers encoders: loaded from safetensors only, without foreign code, in evaluation mode.

The bits of a matrix product depend on its shape and on the number of threads. So each row goes through its encoder
alone and on one thread, and rows run side by side: a vector depends on the content and the encoder, not on what else
is in the table or in the cache, nor on the number of cores.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging as transformers_logging

from mbd.errors import UsageError

_LOCAL = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def one_thread() -> Iterator[None]:
    """Let every torch operation run on the thread that calls it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def load_model(folder: Path, key: str, reads: str, *, unused: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 -- any
    """Return the model in `folder`, which has to read `reads`; only weights of parts in `unused` may be missing."""
    with _errors_as_usage(folder, key), _quiet():
        model, report = transformers.AutoModel.from_pretrained(
            folder, **_LOCAL, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    if model.main_input_name != reads or getattr(model.config, "is_encoder_decoder", False):
        raise UsageError(
            f"this is not an encoder that reads {reads} and nothing else",
            key=key,
            value=f"{folder}: {type(model).__name__}",
            hint="give one like BERT for texts, and one like ResNet for pictures",
        )
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(unused))
    if missing:
        raise UsageError(
            f"{len(missing)} weights of the encoder are not in its file: they would be random",
            key=key,
            value=f"{folder}: {missing[0]}",
            hint="give a complete encoder",
        )
    return model.eval().requires_grad_(False)


def load_tokenizer(folder: Path, key: str) -> Any:  # noqa: ANN401 -- any tokenizer
    """Return the tokenizer in `folder`."""
    with _errors_as_usage(folder, key), _quiet():
        return transformers.AutoTokenizer.from_pretrained(folder, **_LOCAL)


@contextmanager
def _errors_as_usage(folder: Path, key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever transformers, tokenizers and safetensors may raise
        raise UsageError(
            f"the encoder cannot be loaded: {error}",
            key=key,
            value=folder,
            hint="give a folder that save_pretrained has written, with model and tokenizer or preprocessor",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loading report: what matters in it is checked."""
    verbosity, bar = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bar:
            transformers_logging.enable_progress_bar()
