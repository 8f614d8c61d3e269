"""A served store with its own keys and a token for each role, in this process or in one of its own."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from mbd.cli.options import repeated
from mbd.formats.access import ROLES
from mbd.params import Params, load_params
from mbd.serving.app import create_app
from mbd.serving.service import Service
from mbd.serving.tokens import TokenFile
from tests.monitoring.golden_store import GoldenStore
from tests.serving.waiting import PATIENCE, wait_until


@dataclass
class Site:
    """A store to serve, and who may do what."""

    golden: GoldenStore
    settings: list[str] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, place: Path | GoldenStore, *settings: str) -> "Site":
        site = cls(place if isinstance(place, GoldenStore) else GoldenStore.open(place), list(settings))
        for role in ROLES:
            site.tokens[role], _ = site.token_file.new(f"{role} client", [role])
        return site

    @property
    def token_file(self) -> TokenFile:
        return TokenFile(self.golden.folder / "keys" / "tokens.json")

    @property
    def log_file(self) -> Path:
        return self.golden.folder / "serve.log"

    @property
    def options(self) -> list[str]:
        return [
            f"serving.tokens={self.token_file.file}",
            f"store.url={self.golden.url}",
            f"certificate.lineage_key={self.golden.folder}/keys/lineage.key",
            *self.settings,
        ]

    @property
    def params(self) -> Params:
        return load_params(None, self.options)

    def service(self) -> Service:
        return Service.open(self.params, self.golden.store, self.golden.trust_file)

    def headers(self, role: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}

    @contextmanager
    def client(self) -> Iterator["SiteClient"]:
        """Serve in this process, until the first scan has ended."""
        service = self.service()
        with TestClient(create_app(service), base_url="http://testserver") as client:
            assert service.monitor.scanned.wait(PATIENCE)
            wait_until(lambda: service.index.complete or service.monitor.snapshot is None)
            yield SiteClient(self, service, client)

    @contextmanager
    def process(self, *arguments: str, files: int | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Serve in a process of its own, which may open so many files; yield its address; see :attr:`log_file`."""
        trust = ("--trust", str(self.golden.trust_file))
        with serving_process(
            self.log_file, *trust, *repeated("--set", self.options), *arguments, files=files
        ) as served:
            yield served


@dataclass
class SiteClient:
    """A client of a site in this process."""

    site: Site
    service: Service
    http: TestClient

    def get(self, path: str, role: str | None = "read", **more: Any) -> Any:
        return self.http.get(path, headers=self.site.headers(role) | more.pop("headers", {}), **more)

    def post(self, path: str, document: object = None, role: str | None = "submit", **more: Any) -> Any:
        headers = self.site.headers(role) | more.pop("headers", {})
        return self.http.post(path, json=document, headers=headers, **more)

    def submit(self, key: str | None = None, **changes: Any) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return self.post("/requests", {"model": "sentiment", "modalities": ["audio"]} | changes, headers=headers)

    def rescan(self) -> None:
        self.service.monitor.scan()


@contextmanager
def serving_process(
    log_file: Path, *arguments: str, files: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `mbd serve` on a free port; yield its address and its process. A pipe for its log would fill up."""
    command = [sys.executable, "-c", "from mbd.cli import main; main()", "--log-format", "json", "serve"]
    with log_file.open("wb") as log:
        process = subprocess.Popen([*command, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
    if files:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url, log_file.read_text()
        yield url, process
    finally:
        process.terminate()
        process.communicate(timeout=60)
