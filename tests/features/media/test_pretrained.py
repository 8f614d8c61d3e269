"""Encoders come from a folder, or from the hub at a full commit; only safetensors, and nothing that is random."""

import http.server
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file

from mbd.errors import UsageError
from mbd.features.media.encoders import encoder_files, encoder_folder
from mbd.features.media.frozen import load_model, load_tokenizer
from mbd.files import sha256_file
from tests.features.media.build import write_text_encoder
from tests.http_servers import in_background
from tests.refusals import refused

KEY = "features.source.media.text_encoder"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_encoder(tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture
def copy(encoder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "tiny-bert"))


def test_a_local_folder_and_the_digests_of_what_is_read(copy: Path) -> None:
    (copy / "pytorch_model.bin").write_bytes(b"a pickle")
    (copy / "modeling.py").write_text("raise SystemExit")
    assert encoder_folder(str(copy), None, KEY) == copy
    files = encoder_files(copy)
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"} <= files.keys()
    assert not {"pytorch_model.bin", "modeling.py"} & files.keys()
    assert files["model.safetensors"] == sha256_file(copy / "model.safetensors")


@pytest.mark.parametrize("revision", [None, "main", COMMIT[:7], COMMIT.upper()])
def test_a_hub_id_without_a_full_commit_is_refused(revision: str | None) -> None:
    with refused(UsageError, match="full commit", key="features.source.media.text_revision"):
        encoder_folder("someone/tiny-bert", revision, KEY)


def test_a_path_that_is_not_there_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none"), "./none", "a/b/c"):
        with refused(UsageError, key=KEY, value=name, hint=None):
            encoder_folder(name, COMMIT, KEY)


def test_a_folder_has_no_revision(encoder: Path) -> None:
    with refused(UsageError, key="features.source.media.text_revision", value=COMMIT):
        encoder_folder(str(encoder), COMMIT, KEY)


def test_pickled_weights_and_foreign_folders_are_refused(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"a pickle")
    for problem in ("no weights in safetensors", r"no config\.json"):
        with refused(UsageError, match=problem, key=KEY, value=copy):
            encoder_folder(str(copy), None, KEY)
        (copy / "config.json").write_text("[]")


def test_an_encoder_with_missing_weights_would_be_random(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    less = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    save_file(less, copy / "model.safetensors", metadata={"format": "pt"})
    assert load_model(copy, KEY, "input_ids", unused=("pooler.",)).training is False
    with refused(UsageError, value=f"{copy}: pooler.dense.bias"):
        load_model(copy, KEY, "input_ids")
    del less["encoder.layer.1.output.dense.bias"]
    save_file(less, copy / "model.safetensors", metadata={"format": "pt"})
    with refused(UsageError, value=f"{copy}: encoder.layer.1.output.dense.bias"):
        load_model(copy, KEY, "input_ids", unused=("pooler.",))


def test_weights_are_frozen_and_float32(copy: Path) -> None:
    half = {name: tensor.half() for name, tensor in load_file(copy / "model.safetensors").items()}
    save_file(half, copy / "model.safetensors", metadata={"format": "pt"})
    model = load_model(copy, KEY, "input_ids")
    assert {(p.dtype, p.requires_grad) for p in model.parameters()} == {(torch.float32, False)}


def test_code_that_comes_with_an_encoder_is_not_run(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "own.py").write_text(f"open({str(copy / 'was_run')!r}, 'w')")
    with refused(UsageError, key=KEY, value=copy):
        load_model(copy, KEY, "input_ids")
    assert not (copy / "was_run").exists()


def test_damaged_files_are_named(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes(b"\xff" * 100)
    with refused(UsageError, key=KEY, value=copy):
        load_model(copy, KEY, "input_ids")
    (copy / "tokenizer.json").write_text("{")
    with refused(UsageError, key=KEY, value=copy):
        load_tokenizer(copy, KEY)


@contextmanager
def loopback_hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve `folder` as someone/tiny-bert at COMMIT the way the hub does; yield the address and what was fetched."""
    fetched: list[str] = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == f"/api/models/someone/tiny-bert/tree/{COMMIT}":
                tree = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": sha256_file(f)[:40]}
                    for f in folder.iterdir()
                ]
                self.answer(json.dumps(tree).encode(), "application/json")
            elif path.startswith(f"/someone/tiny-bert/resolve/{COMMIT}/"):
                name = path.rpartition("/")[2]
                fetched.extend([name] if self.command == "GET" else [])
                self.answer((folder / name).read_bytes(), "application/octet-stream", etag=sha256_file(folder / name))
            else:
                self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 -- the names that http.server looks for

        def answer(self, body: bytes, kind: str, **headers: str) -> None:
            self.send_response(200)
            for name, value in {"Content-Type": kind, "X-Repo-Commit": COMMIT, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with in_background(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)) as server:
        yield f"http://127.0.0.1:{server.server_port}", fetched


def test_a_pinned_encoder_is_fetched_once_and_without_pickles(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "pytorch_model.bin").write_bytes(b"a pickle")
    (copy / "own.py").write_text("raise SystemExit")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with loopback_hub(copy) as (address, fetched):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setattr(
            huggingface_hub.constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        folder = encoder_folder("someone/tiny-bert", COMMIT, KEY)
        assert encoder_files(folder) == encoder_files(copy)
        assert sorted(fetched) == sorted(encoder_files(copy))
        with refused(UsageError, key=KEY, value=f"someone/tiny-bert at {COMMIT[::-1]}"):
            encoder_folder("someone/tiny-bert", COMMIT[::-1], KEY)
    # Without a network, what was fetched is enough.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert encoder_folder("someone/tiny-bert", COMMIT, KEY) == folder
    with refused(UsageError, key=KEY, value=f"someone/other at {COMMIT}"):
        encoder_folder("someone/other", COMMIT, KEY)
