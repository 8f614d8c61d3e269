"""The Open Inference Protocol, version 2, over HTTP: what a request says, how it is answered, and how it is refused.

    body      JSON, or JSON of Inference-Header-Content-Length bytes and after it the bytes of the binary tensors
    inputs    name, datatype, shape, and data (in JSON, nested or flat) or parameters.binary_data_size: the bytes that
              follow the JSON, in row-major order, little-endian
    outputs   optional: names, each with parameters.binary_data; parameters.binary_data_output is the default for all

Long JSON is parsed in a process of its own: what parses it holds Python's lock, and would hold up every request. The
process is started by the first long body and ends with the server; how many may wait is bounded by what they hold
in memory (:mod:`mbd.serving.connections`).

The answer has the same form. What the protocol leaves to extensions (sequences, classification, shared memory) is
refused rather than ignored, because an answer without it would be another one.
"""

import asyncio
import math
import os
import signal
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from http import HTTPStatus
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from mbd.errors import MbdError
from mbd.serving.problems import ApiError, describe_invalid
from mbd.tensors import Array

HEADER = "Inference-Header-Content-Length"
DATATYPES = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""of the protocol, but BYTES, which no model takes"""
DATATYPE_OF = {dtype: name for name, dtype in DATATYPES.items()}
SHORT = 1 << 15
"""bytes of JSON that are parsed at once: some milliseconds"""
_WHOLE, _REAL = "iu", "fiu"
_LONGEST = 100

Reason = Literal[
    "malformed",
    "too_large",
    "unknown_model",
    "invalid_input",
    "revoked_modality",
    "unavailable",
    "overloaded",
    "failed",
]
_STATUS: dict[Reason, HTTPStatus] = {
    "malformed": HTTPStatus.BAD_REQUEST,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unknown_model": HTTPStatus.NOT_FOUND,
    "invalid_input": HTTPStatus.UNPROCESSABLE_ENTITY,
    "revoked_modality": HTTPStatus.UNPROCESSABLE_ENTITY,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "failed": HTTPStatus.INTERNAL_SERVER_ERROR,
}


class InferenceError(ApiError):
    """An inference request that is refused; clients of the protocol read the member `error`."""

    def __init__(self, reason: Reason, problem: str, *, value: object = None, **members: str | None) -> None:
        status, self.reason = _STATUS[reason], reason
        again = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        fields = {"reason": reason, "value": None if value is None else str(value), **members}
        super().__init__(status, problem, headers=again, **fields)


def invalid(error: MbdError) -> InferenceError:
    """Return the refusal of an input that the model does not take."""
    return InferenceError("invalid_input", error.problem, key=error.key, value=error.value, hint=error.hint)


def shown(text: object) -> str:
    """Return something that a client has sent, short enough for an error message."""
    plain = str(text)
    return repr(plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…")


class _Parameters(BaseModel):
    """Parameters of a request, an input or an output: others than these would be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    priority: Any = None
    timeout: Any = None
    headers: Any = None
    content_type: Any = None


class RequestParameters(_Parameters):
    """Of a request."""

    binary_data_output: bool = False


class InputParameters(_Parameters):
    """Of an input."""

    binary_data_size: Annotated[int, Field(ge=0)] | None = None


class OutputParameters(_Parameters):
    """Of a wanted output."""

    binary_data: bool | None = None


class InputTensor(BaseModel):
    """An input."""

    model_config = ConfigDict(strict=True)

    name: str
    datatype: Annotated[str, Field(pattern=f"^({'|'.join(DATATYPES)})$")]
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=8)]
    data: list[Any] | None = None
    parameters: InputParameters | None = None

    def read(self, rest: memoryview) -> tuple[Array, memoryview]:
        """Return its values, and what follows of the bytes after the JSON."""
        size = self.parameters.binary_data_size if self.parameters else None
        if size is None:
            return self._from_json(), rest
        needed = math.prod(self.shape) * DATATYPES[self.datatype].itemsize
        if self.data is not None or size != needed or size > len(rest):
            raise InferenceError(
                "malformed",
                "an input has either data or binary_data_size: the bytes of its shape and datatype, of those that "
                f"follow the JSON; it needs {needed} of {len(rest)}",
                key=self.name,
                value=size,
            )
        return np.frombuffer(rest[:size], DATATYPES[self.datatype]).reshape(self.shape), rest[size:]

    def _from_json(self) -> Array:
        dtype, shape, problem = DATATYPES[self.datatype], tuple(self.shape), None
        try:
            values = np.asarray(self.data)
        except ValueError:
            raise InferenceError("malformed", "its rows have different lengths", key=self.name) from None
        if not values.size and self.data is not None:
            values = values.astype(dtype)
        if values.dtype.kind not in {"f": _REAL, "b": "b"}.get(dtype.kind, _WHOLE):
            kind = {"f": "numbers", "b": "true or false"}.get(dtype.kind, "whole numbers")
            problem = f"its data are not a list of {kind}"
        elif values.shape not in (shape, (math.prod(shape),)):
            problem = f"its data have the shape {list(values.shape)}, and it says {list(shape)}"
        elif dtype.kind in _WHOLE and values.size and not _fits(values, dtype):
            problem = f"a value does not fit into {self.datatype}"
        if problem:
            raise InferenceError("malformed", problem, key=self.name)
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is refused by name later
            return values.astype(dtype).reshape(shape)


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(values.min()) >= limits.min and int(values.max()) <= limits.max


class WantedOutput(BaseModel):
    """An output that is asked for."""

    name: str
    parameters: OutputParameters | None = None


class RequestDocument(BaseModel):
    """The JSON of a request."""

    model_config = ConfigDict(strict=True)

    id: str | None = None
    parameters: RequestParameters | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1)]
    outputs: list[WantedOutput] | None = None


class OutputTensor(BaseModel):
    """An output."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: InputParameters | None = None


class AnswerDocument(BaseModel):
    """The JSON of an answer."""

    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[OutputTensor]


@dataclass(frozen=True)
class InferenceRequest:
    """A parsed request."""

    id: str | None
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool] | None
    """names of the wanted outputs, and whether in bytes; None: all, as `binary` says"""
    binary: bool
    """whether outputs are in bytes if nothing else is said"""


def parse_request(body: bytes, header_length: str | None) -> InferenceRequest:
    """Parse the body of a request.

    Args:
        body: The body.
        header_length: The value of the header `Inference-Header-Content-Length`; None: there is none, all is JSON.

    Raises:
        InferenceError: It does not follow the protocol.

    """
    length = len(body)
    if header_length is not None:
        if not header_length.isascii() or not header_length.isdigit() or int(header_length[:20]) > length:
            problem = "the length of the JSON is not one within the body"
            raise InferenceError("malformed", problem, key=HEADER, value=shown(header_length))
        length = int(header_length)
    document = _parse_document(body[:length] if length < len(body) else body)
    inputs, rest = dict[str, Array](), memoryview(body)[length:]
    for tensor in document.inputs:
        if tensor.name in inputs:
            raise InferenceError("malformed", f"the input {shown(tensor.name)} is there twice")
        inputs[tensor.name], rest = tensor.read(rest)
    if len(rest):
        raise InferenceError("malformed", f"{len(rest)} bytes follow the last binary input")
    binary = document.parameters is not None and document.parameters.binary_data_output
    wanted = {
        output.name: binary if output.parameters is None else bool(output.parameters.binary_data)
        for output in document.outputs or ()
    }
    return InferenceRequest(document.id or None, inputs, wanted or None, binary)


def _parse_document(text: bytes) -> RequestDocument:
    try:
        return RequestDocument.model_validate(from_json(text, allow_inf_nan=True, cache_strings="keys"))
    except ValidationError as error:
        words, key = describe_invalid(error.errors(include_url=False)[0])
        raise InferenceError("malformed", words, key=key, hint="see docs/inference.md") from None
    except ValueError as error:
        hint = f"before binary tensors, say its length in {HEADER}"
        raise InferenceError("malformed", f"the request is not JSON: {error}", hint=hint) from None


def render_answer(
    request: InferenceRequest, model: str, version: str, outputs: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON if bytes follow it.

    Raises:
        InferenceError: An output was asked for that the model does not have.

    """
    wanted = dict.fromkeys(outputs, request.binary) if request.outputs is None else request.outputs
    if unknown := next((name for name in wanted if name not in outputs), None):
        hint = f"it has {', '.join(outputs)}"
        raise InferenceError("invalid_input", f"the model has no output {shown(unknown)}", hint=hint)
    entries, parts = [], []
    for name, binary in wanted.items():
        array = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPE_OF[array.dtype], "shape": list(array.shape)}
        if binary:
            parts.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = array.ravel().tolist()
        entries.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id is not None:
        document["id"] = request.id
    head = to_json(document)
    return (b"".join((head, *parts)), len(head)) if parts else (head, None)


class RequestParser:
    """Parses the bodies of requests, one long one after the other."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def parse(self, body: bytes, header_length: str | None) -> InferenceRequest:
        """Parse a body as :func:`parse_request` does."""
        head = int(header_length) if header_length and header_length[:20].isdecimal() else len(body)
        if min(head, len(body)) <= SHORT:
            return parse_request(body, header_length)
        self._pool = pool = self._pool or ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        try:
            parsed = await asyncio.get_running_loop().run_in_executor(pool, _parse, body, header_length)
        except BrokenProcessPool:  # it was killed: the body took more memory than there is
            self._pool = None
            raise InferenceError("failed", "the request could not be parsed", hint="send binary tensors") from None
        if isinstance(parsed, InferenceRequest):
            return parsed
        raise InferenceError(**parsed)

    def stop(self) -> None:
        """End the process."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _parse(body: bytes, header_length: str | None) -> InferenceRequest | dict[str, Any]:
    try:
        return parse_request(body, header_length)
    except InferenceError as error:
        return {"problem": error.problem, **error.members}


def _end_with_parent() -> None:
    """Leave signals to the server, and end when it does, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(0)

    Thread(target=watch, daemon=True).start()
