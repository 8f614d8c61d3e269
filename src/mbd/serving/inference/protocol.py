"""The Open Inference Protocol, version 2, over HTTP: what a request says, and how it is answered.

    body      JSON, or JSON of Inference-Header-Content-Length bytes and after it the bytes of the binary tensors
    inputs    name, datatype, shape, and data (in JSON) or parameters.binary_data_size (bytes after the JSON)
    outputs   optional: names, each with parameters.binary_data; parameters.binary_data_output is the default for all

The answer has the same form. What the protocol leaves to extensions (sequences, classification, shared memory) is
refused rather than ignored, because an answer without it would be another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json as parse_json
from pydantic_core import to_json

from mbd.serving.inference.errors import InferenceError, shown
from mbd.serving.inference.tensors import DATATYPES, from_bytes, from_json, read_head
from mbd.tensors import Array

HEADER = "Inference-Header-Content-Length"
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_IGNORED = frozenset({"priority", "timeout", "headers", "content_type"})
"""parameters of a request that change no number of the answer"""


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
            raise InferenceError(
                "malformed", "the length of the JSON is not one within the body", key=HEADER, value=shown(header_length)
            )
        length = int(header_length)
    document = _object(body[:length] if length < len(body) else body)
    parameters = _parameters(document, {"binary_data_output"}, "the request")
    entries = document.get("inputs")
    if not isinstance(entries, list) or not entries:
        raise InferenceError("malformed", "a request needs inputs", hint="give at least one modality")
    inputs, rest = _read_inputs(entries, memoryview(body)[length:])
    if len(rest):
        raise InferenceError("malformed", f"{len(rest)} bytes follow the last binary input")
    request_id = document.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise InferenceError("malformed", "the id of a request is a text")
    binary = bool(parameters.get("binary_data_output", False))
    return InferenceRequest(request_id or None, inputs, _outputs(document.get("outputs"), default=binary), binary)


def render_answer(
    request: InferenceRequest, model: str, version: str, outputs: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON if bytes follow it.

    Raises:
        InferenceError: An output was asked for that the model does not have.

    """
    wanted = dict.fromkeys(outputs, request.binary) if request.outputs is None else request.outputs
    if unknown := next((name for name in wanted if name not in outputs), None):
        raise InferenceError(
            "invalid_input", f"the model has no output {shown(unknown)}", hint=f"it has {', '.join(outputs)}"
        )
    entries, parts = [], []
    for name, binary in wanted.items():
        array = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": _NAMES[array.dtype], "shape": list(array.shape)}
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


def _object(text: bytes) -> dict[str, Any]:
    try:
        document = parse_json(text, allow_inf_nan=True, cache_strings="keys")
    except ValueError as error:
        raise InferenceError(
            "malformed", f"the request is not JSON: {error}", hint=f"before binary tensors, say its length in {HEADER}"
        ) from None
    if not isinstance(document, dict):
        raise InferenceError("malformed", "the request is not a JSON object")
    return document


def _read_inputs(entries: list[Any], rest: memoryview) -> tuple[dict[str, Array], memoryview]:
    """Return the tensors by name, and the bytes after the last of them."""
    inputs: dict[str, Array] = {}
    for entry in entries:
        head = read_head(entry)
        size = _parameters(entry, {"binary_data_size"}, shown(head.name)).get("binary_data_size")
        if head.name in inputs:
            raise InferenceError("malformed", f"the input {shown(head.name)} is there twice")
        if size is None:
            inputs[head.name] = from_json(head, entry.get("data"))
        elif "data" in entry or type(size) is not int or not 0 <= size <= len(rest):
            raise InferenceError(
                "malformed",
                "an input has either data or binary_data_size, which is at most the bytes that follow the JSON",
                key=head.name,
                value=shown(size),
            )
        else:
            inputs[head.name] = from_bytes(head, rest[:size])
            rest = rest[size:]
    return inputs, rest


def _outputs(entries: object, *, default: bool) -> dict[str, bool] | None:
    if entries is None or entries == []:
        return None
    found = {}
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InferenceError("malformed", "each wanted output needs a name")
        asked = _parameters(entry, {"binary_data"}, shown(entry["name"])).get("binary_data", default)
        found[entry["name"]] = bool(asked)
    return found


def _parameters(holder: Mapping[str, Any], known: set[str], where: str) -> Mapping[str, Any]:
    """Return the parameters of a request, an input or an output; refuse what would be ignored."""
    found = holder.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InferenceError("malformed", f"the parameters of {where} are not a JSON object")
    if unknown := next((name for name in found if name not in known | _IGNORED), None):
        raise InferenceError(
            "malformed", f"the parameter {shown(unknown)} of {where} is not supported", hint="leave it out"
        )
    return found
