"""What the OpenAPI document says of the protocol: the body of a request, answers and failures."""

from typing import Any

from mbd.serving.inference.errors import MEDIA_TYPE, InferenceError, Reason
from mbd.serving.inference.tensors import DATATYPES

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _tensor(data: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": {"type": "string"},
            "datatype": {"enum": list(DATATYPES)},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 8},
            "data": data,
            "parameters": {"type": "object", "properties": parameter},
        },
    }


_SIZE = {"binary_data_size": {"type": "integer", "minimum": 0}}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object", "properties": {"binary_data_output": {"type": "boolean"}}},
        "inputs": {"type": "array", "minItems": 1, "items": _tensor({"type": "array"}, _SIZE)},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "parameters": {"type": "object", "properties": {"binary_data": {"type": "boolean"}}},
                },
            },
        },
    },
}
_ANSWER = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "id": {"type": "string"},
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "outputs": {"type": "array", "items": _tensor({"type": "array", "items": {"type": "number"}}, _SIZE)},
    },
}
_ALWAYS = ("type", "title", "detail", "error", "reason", "request_id")
_FAILURE = {
    "type": "object",
    "required": [*_ALWAYS, "status"],
    "properties": {name: {"type": "string"} for name in (*_ALWAYS, "key", "value", "hint", "certificate")}
    | {"status": {"type": "integer"}},
}
_MEANINGS: dict[Reason, str] = {
    "malformed": "The request does not follow the protocol",
    "unknown_model": "There is no such model or version here",
    "too_large": "The request has too many bytes or rows",
    "invalid_input": "The model does not take this input, or the modality was revoked",
    "failed": "The model failed",
    "unavailable": "No release of the model is served, or too many requests wait",
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}, **_BINARY}}
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The outputs", "content": {"application/json": {"schema": _ANSWER}, **_BINARY}}
}
FAILURES: dict[int | str, dict[str, Any]] = {
    int(InferenceError(reason, "").status): {
        "description": meaning,
        "content": {MEDIA_TYPE: {"schema": _FAILURE}},
    }
    for reason, meaning in _MEANINGS.items()
}
