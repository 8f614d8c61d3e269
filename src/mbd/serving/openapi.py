"""The OpenAPI document: errors as they are sent, no token where none is needed, and an example of each operation."""

import json
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mbd.params.serving import PUBLIC
from mbd.serving import problems
from mbd.serving.identity import Gatekeeper

_PROBLEM = {"$ref": f"#/components/schemas/{problems.Problem.__name__}"}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application, which is made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        gatekeeper: Gatekeeper = app.state.gatekeeper
        schemas = document["components"]["schemas"]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _complete(operation, gatekeeper)
                schema = (
                    operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                )
                body = schemas.get(schema.get("$ref", "").rpartition("/")[2], {}).get("examples", [None])[0]
                operation["description"] += _example(method, path, body, token="security" in operation)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(operation: dict[str, Any], gatekeeper: Gatekeeper) -> None:
    """Describe the errors of an operation, its access, and in one sentence what it does."""
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            example = problems.example(int(status), response["description"])
            response["content"] = {problems.MEDIA_TYPE: {"schema": _PROBLEM, "example": example}}
    tags = operation.get("tags", [])
    if any(gatekeeper.is_public(what) for what in PUBLIC if what in tags):
        operation["security"] = [{}, *operation.get("security", ())]
    operation["tags"] = tags[:1]  # the others only say what is public
    operation.setdefault("description", operation["summary"])
    operation["summary"] = re.split(r"[.:;](?:\s|$)", operation["description"], maxsplit=1)[0]


def _example(method: str, path: str, body: object, *, token: bool) -> str:
    """Return an example of an operation in curl and in Python, as Markdown; `token`: one may be needed."""
    place = re.sub(r"\{(\w+)[^}]*\}", lambda name: name[1].upper(), path)
    curl = ["curl", *(['-H "Authorization: Bearer $MBD_TOKEN"'] if token else [])]
    python = [f'URL + "{place}"', *(['headers={"Authorization": f"Bearer {TOKEN}"}'] if token else [])]
    if method == "post":
        curl.append("-X POST" if body is None else f"--json '{json.dumps(body)}'")
        python += [] if body is None else [f"json={body!r}"]
    curl.append(f'"$MBD_URL{place}"')
    call = f"requests.{method}({', '.join(python)}, timeout=30)"
    return f"\n\n```sh\n{' '.join(curl)}\n```\n\n```python\n{call}\n```"
