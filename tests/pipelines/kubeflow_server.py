"""A Kubeflow Pipelines API (v2beta1) over HTTP, as kfp's client expects it, that remembers what it was sent."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlparse

from tests.http_servers import in_background

API = "/apis/v2beta1"


@dataclass
class Kubeflow:
    """What the server knows, and how it misbehaves."""

    url: str = ""
    token: str | None = None
    failing: int | None = None
    experiments: list[dict[str, Any]] = field(default_factory=list)
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    versions: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    recurring: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    """by pod"""
    made: int = 0
    page: int = 2
    """entries on a page"""

    def new(self, kind: list[dict[str, Any]], key: str, **entry: Any) -> dict[str, Any]:
        self.made += 1
        made = {key: f"{key}-{self.made}", "created_at": f"2026-01-01T00:00:{self.made:02}Z", **entry}
        kind.append(made)
        return made


class _Handler(BaseHTTPRequestHandler):
    kubeflow: Kubeflow

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        known, url = self.kubeflow, urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if known.failing:
            return self._answer(known.failing, {"error": "as asked"})
        if known.token and self.headers.get("Authorization") != f"Bearer {known.token}":
            return self._answer(401, {"error": "unauthenticated"})
        if match := re.fullmatch(r"/apis/v1alpha1/runs/[^/]+/nodes/([^/]+)/log", url.path):
            log = known.logs.get(match[1])
            return self._answer(500, {"error": "no such pod"}) if log is None else self._send(200, log.encode())
        if not url.path.startswith(API):
            return self._answer(404, {"error": "no such path"})
        found = self._route(self.command, url.path.removeprefix(API), query, body)
        return self._answer(404, {"error": "not found"}) if found is None else self._answer(200, found)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 -- the names that the base class calls

    def _route(self, method: str, path: str, query: dict[str, str], body: bytes) -> dict[str, Any] | None:
        known = self.kubeflow
        if path == "/healthz":
            return {"multi_user": False}
        if path.startswith("/pipelines"):
            return self._pipelines(method, path, query, body)
        kinds = {
            "experiments": (known.experiments, "experiment_id"),
            "runs": (known.runs, "run_id"),
            "recurringruns": (known.recurring, "recurring_run_id"),
        }
        match = re.fullmatch(r"/(\w+)(?:/([\w-]+))?(?::(\w+))?", path)
        if match is None or match[1] not in kinds:
            return None
        entries, key = kinds[match[1]]
        if match[2] is None:
            if method == "POST":
                given = json.loads(body)
                if key != "experiment_id":  # as the real server does
                    given["service_account"] = given.get("service_account") or "pipeline-runner"
                return known.new(entries, key, **given)
            name = "recurringRuns" if match[1] == "recurringruns" else match[1]
            return _page(name, [e for e in entries if _matches(e, query)], query, known.page)
        entry = next((e for e in entries if e[key] == match[2]), None)
        if entry is None:
            return None
        if method == "DELETE":
            entries.remove(entry)
        if match[3] == "disable":
            entry["status"] = "DISABLED"
        return entry if method == "GET" else {}

    def _pipelines(self, method: str, path: str, query: dict[str, str], body: bytes) -> dict[str, Any] | None:
        known = self.kubeflow
        if path == "/pipelines/upload":
            made = known.new(known.pipelines, "pipeline_id", display_name=query["name"])
            known.new(known.versions, "pipeline_version_id", display_name=query["name"], **_file(self, body, made))
            return made
        if path == "/pipelines/upload_version":
            pipeline = next(p for p in known.pipelines if p["pipeline_id"] == query["pipelineid"])
            entry = _file(self, body, pipeline)
            return known.new(known.versions, "pipeline_version_id", display_name=query["name"], **entry)
        if path == "/pipelines":
            return _page("pipelines", [p for p in known.pipelines if _matches(p, query)], query, known.page)
        if match := re.fullmatch(r"/pipelines/([\w-]+)/versions", path):
            listed = [v for v in known.versions if v["pipeline_id"] == match[1]]
            return {"pipeline_versions": listed, "total_size": len(listed)}
        return None


def _file(handler: _Handler, body: bytes, pipeline: dict[str, Any]) -> dict[str, Any]:
    head = f"Content-Type: {handler.headers['Content-Type']}\r\n\r\n".encode()
    (part,) = cast("list[Message]", message_from_bytes(head + body).get_payload())
    return {"pipeline_id": pipeline["pipeline_id"], "package": cast(bytes, part.get_payload(decode=True)).decode()}


def _matches(entry: dict[str, Any], query: dict[str, str]) -> bool:
    if query.get("experiment_id", entry.get("experiment_id")) != entry.get("experiment_id"):
        return False
    predicates = json.loads(query.get("filter") or "{}").get("predicates", [])
    return all(entry.get(p["key"]) == p["stringValue"] for p in predicates)


def _page(name: str, entries: list[dict[str, Any]], query: dict[str, str], size: int) -> dict[str, Any]:
    start = int(query.get("page_token") or 0)
    rest = {"next_page_token": str(start + size)} if start + size < len(entries) else {}
    return {name: entries[start : start + size], "total_size": len(entries), **rest}


@contextmanager
def kubeflow_server(page: int = 2) -> Iterator[Kubeflow]:
    """Serve on loopback, with so many entries on a page, whatever the client asks for: it has to turn pages."""
    kubeflow = Kubeflow(page=page)
    handler = type("Handler", (_Handler,), {"kubeflow": kubeflow})
    with in_background(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        kubeflow.url = f"http://127.0.0.1:{server.server_port}"
        yield kubeflow
