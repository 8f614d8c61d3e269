"""What is fuzzed: every parser that reads files from outside, with small valid files to start from."""

import io
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from mbd.features.sources import read_source
from mbd.features.sources.media import read_table
from mbd.formats.model import ModelRecord
from mbd.formats.request import Decision, DeletionRequest, Event, Files, Lease
from mbd.formats.statement import is_canonical, parse_payload
from mbd.log.checkpoint import Inclusion, verify_checkpoint
from mbd.monitoring.store_scanner import facts_of_request
from mbd.params import load_params
from mbd.randomness import stream
from mbd.records import now
from mbd.serving.inference.protocol import HEADER, parse_request
from mbd.tensors import Array, open_tensors
from mbd.trust.envelope import Envelope
from mbd.trust.trust_file import read_trust
from mbd.verifier.reader import verify_envelope
from tests.fuzz.mutations import Mutator, bytes_or_tokens, in_archive, in_header, in_json
from tests.golden.certificates.cases import HERE
from tests.serving.inference.server import encode

_GOLDEN = HERE / "v1" / "surgery"
_SPLITS = {"train": 6, "valid": 3, "test": 3}


@dataclass(frozen=True)
class Target:
    """A parser, how valid inputs of it are made, and how they are changed."""

    seeds: Callable[[], list[bytes]]
    parse: Callable[[Path], object]
    """reads the file; whatever it raises but an MbdError is a finding"""
    mutate: Mutator = bytes_or_tokens
    file: str = "input"
    """name of the file, where a parser looks at it"""


def _source(kind: str) -> Callable[[Path], object]:
    def parse(path: Path) -> object:
        settings = [f"features.source.kind={kind}", f"features.source.path={path}"]
        return read_source(load_params(None, settings).features)

    return parse


def _arrays() -> dict[str, Array]:
    draw = stream(0, "fuzz")
    arrays: dict[str, Array] = {}
    for split, rows in _SPLITS.items():
        arrays[f"{split}_text"] = draw.standard_normal((rows, 3)).astype(np.float32)
        arrays[f"{split}_audio"] = draw.standard_normal((rows, 2))
        arrays[f"{split}_labels"] = np.arange(rows, dtype=np.float32)
        arrays[f"{split}_ids"] = np.array([f"{split}{row}_0" for row in range(rows)])
        arrays[f"{split}_audio_available"] = np.arange(rows) % 2 == 0
    return arrays


def _npz() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **_arrays())  # type: ignore[arg-type]
    np.savez_compressed(packed, **_arrays())  # type: ignore[arg-type]
    return [plain.getvalue(), packed.getvalue()]


def _table() -> list[bytes]:
    rows = [
        f"r{row}_0,{row / 2},{'train' if row < 6 else 'valid' if row < 9 else 'test'},0.5,1.5,2,3" for row in range(12)
    ]
    return ["\n".join(["id,label,split,text_0,text_1,audio_0,audio_1", *rows, ""]).encode()]


def _columns() -> pa.Table:
    draw, rows = stream(0, "fuzz"), sum(_SPLITS.values())
    return pa.table(
        {
            "id": [f"r{row}_0" for row in range(rows)],
            "label": pa.array([("glad", "sad")[row % 2] for row in range(rows)]).dictionary_encode(),
            "split": [split for split, count in _SPLITS.items() for _ in range(count)],
            "text": list(draw.normal(size=(rows, 3))),
            "audio": pa.FixedSizeListArray.from_arrays(draw.normal(size=2 * rows), 2),
        }
    )


def _arrow() -> list[bytes]:
    table, written = _columns(), []
    for new_writer in (pa.ipc.new_file, pa.ipc.new_stream):
        for compression in (None, "lz4"):
            sink, options = io.BytesIO(), pa.ipc.IpcWriteOptions(compression=compression)
            with new_writer(sink, table.schema, options=options) as writer:
                writer.write_table(table)
            written.append(sink.getvalue())
    return written


def _parquet() -> list[bytes]:
    sink = io.BytesIO()
    pa.parquet.write_table(_columns(), sink)
    return [sink.getvalue()]


def _mmsa() -> list[bytes]:
    content = {}
    for title, rows in _SPLITS.items():
        content[title] = {
            "raw_text": np.array([f"word {row}" for row in range(rows)], dtype=object),
            "audio": np.ones((rows, 4, 2)),
            "vision": np.ones((rows, 5, 3)),
            "id": [f"{title}_v{row}$_${row}" for row in range(rows)],
            "text": np.ones((rows, 3, 2), np.float32),
            "audio_lengths": [2] * rows,
            "vision_lengths": [3] * rows,
            "annotations": ["Negative"] * rows,
            "classification_labels": np.zeros(rows),
            "regression_labels": np.arange(rows, dtype=np.float32),
        }
    return [pickle.dumps(content, protocol) for protocol in (2, 4)]


def _iemocap() -> list[bytes]:
    trained = [f"Ses0{session}{kind}_impro01" for session in range(1, 5) for kind in ("F", "M")]
    trained += [name.replace("impro01", "script01_1") for name in trained]
    dialogues = [*trained, "Ses05F_impro01"]
    by_dialogue: list[Any] = [
        {name: [f"{name}_F{row:03d}" for row in range(3)] for name in dialogues},
        {name: ["F", "M", "F"] for name in dialogues},
        {name: [0, 1, 2] for name in dialogues},
        *({name: [np.ones(dim) for _ in range(3)] for name in dialogues} for dim in (3, 2, 4)),
        {name: ["Well."] * 3 for name in dialogues},
    ]
    return [pickle.dumps((*by_dialogue, set(trained), {dialogues[-1]}), protocol) for protocol in (2, 4)]


def _csd() -> list[bytes]:
    h5py = __import__("h5py")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        data = file.create_group("All Labels/data")
        for video in "abc":
            data.create_dataset(f"{video}/features", data=np.ones((2, 1)), compression="gzip")
            data.create_dataset(f"{video}/intervals", data=np.array([[0.0, 1.0], [1.0, 2.0]]), compression="gzip")
    return [content.getvalue()]


def _parse_csd(path: Path) -> object:
    (path.parent / "text.csd").write_bytes(_seed("csd"))
    (path.parent / "folds.json").write_text(json.dumps({"train": ["a"], "valid": ["b"], "test": ["c"]}))
    return _source("csd")(path.parent)


def _media() -> list[bytes]:
    return [b"id,video,transcript,label,split,group\nclip0_0,clips/0.mp4,good,1.5,train,a\nclip1_0,,bad,-1,test,b\n"]


def _parse_tensors(path: Path) -> object:
    return [float(np.asarray(array, np.float64).sum()) for array in open_tensors(path).values()]


def _safetensors() -> list[bytes]:
    entries = {
        name: {"dtype": "F32", "shape": [2, 2], "data_offsets": [16 * k, 16 * k + 16]} for k, name in enumerate("ab")
    }
    header = json.dumps(entries).encode()
    return [struct.pack("<Q", len(header)) + header + bytes(32)]


def _golden(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(_GOLDEN / name).read_bytes()]


def _verify(envelope: Path, proof: Path) -> object:
    return verify_envelope(envelope.read_bytes(), proof.read_bytes(), read_trust(_GOLDEN / "trust.json")).checks


def _statements() -> list[bytes]:
    return [Envelope.parse((_GOLDEN / "bundle" / "certificate.json").read_bytes()).content]


def _parse_statement(path: Path) -> object:
    data = path.read_bytes()
    parse_payload(data)
    return is_canonical(data)


def _requests() -> list[bytes]:
    at = now()
    lease = Lease(worker="worker", until=at, batch="0" * 16)
    event = Event(at=at, state="received", by="submit")
    request = DeletionRequest(
        id="0" * 16, model="sentiment", modalities=("audio",), received=at, due=at, lease=lease, history=(event,)
    )
    return [request.to_bytes()]


def _parse_request(path: Path) -> object:
    request = DeletionRequest.from_bytes(path.read_bytes(), "request")
    return facts_of_request(request), request.moved("running", "worker", now()).to_bytes()


def _decisions() -> list[bytes]:
    files = Files(files={"model.json": "0" * 64, "folder/model.safetensors": "1" * 64})
    return [Decision(batch="0" * 16, outcome="certified", bundle=files, model=files).to_bytes()]


def _checkpoints() -> list[bytes]:
    return [Inclusion.read(_GOLDEN / "bundle" / "proof.json", "proof").checkpoint.encode()]


def _parse_checkpoint(path: Path) -> object:
    return verify_checkpoint(path.read_bytes().decode(errors="replace"), read_trust(_GOLDEN / "trust.json"))


def _inference_requests() -> list[bytes]:
    rows: dict[str, Array] = {
        "text": np.arange(6, dtype=np.float32).reshape(2, 3),
        "ids": np.arange(4).reshape(2, 2),
    }
    body, headers = encode(rows, binary=True, outputs=[{"name": "prediction", "parameters": {"binary_data": True}}])
    plain, _ = encode(rows, id="one", parameters={"binary_data_output": False})
    return [f"{headers[HEADER]}\n".encode() + body, b"\n" + plain]


def _parse_inference_request(path: Path) -> object:
    """Parse a request to the model server; the first line is the header with the length of the JSON."""
    length, _, body = path.read_bytes().partition(b"\n")
    return parse_request(body, length.decode("latin-1") or None)


TARGETS: dict[str, Target] = {
    "npz": Target(_npz, _source("npz"), in_archive, "input.npz"),
    "table": Target(_table, _source("table"), file="input.csv"),
    "arrow": Target(_arrow, _source("table"), file="input.arrow"),
    "parquet": Target(_parquet, _source("table"), file="input.parquet"),
    "csd": Target(_csd, _parse_csd, file="labels.csd"),
    "iemocap": Target(_iemocap, _source("iemocap"), file="input.pkl"),
    "mmsa": Target(_mmsa, _source("mmsa"), file="input.pkl"),
    "media": Target(_media, read_table, file="input.csv"),
    "safetensors": Target(_safetensors, _parse_tensors, in_header),
    "envelope": Target(
        _golden("bundle/certificate.json"), lambda path: _verify(path, _GOLDEN / "bundle" / "proof.json"), in_json
    ),
    "proof": Target(
        _golden("bundle/proof.json"), lambda path: _verify(_GOLDEN / "bundle" / "certificate.json", path), in_json
    ),
    "trust": Target(_golden("trust.json"), read_trust, in_json),
    "model": Target(_golden("model/model.json"), lambda path: ModelRecord.read(path, "model record"), in_json),
    "params": Target(lambda: [(HERE.parents[2] / "params.yaml").read_bytes()], load_params, file="params.yaml"),
    "statement": Target(_statements, _parse_statement, in_json),
    "request": Target(_requests, _parse_request, in_json),
    "decision": Target(_decisions, lambda path: Decision.read(path, "decision"), in_json),
    "checkpoint": Target(_checkpoints, _parse_checkpoint),
    "inference": Target(_inference_requests, _parse_inference_request),
}


@cache
def _seed(name: str) -> bytes:
    return TARGETS[name].seeds()[0]
