"""A store with signing keys, a small trained model, and `mbd serve --worker` on it."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mbd.cli.options import repeated
from mbd.params import load_params
from mbd.serving.tokens import TokenFile
from mbd.steps import features, train
from mbd.trust.keys import TRUST, make_keys
from tests.certificate.authority import key_settings
from tests.production.small import SETTINGS
from tests.serving.site import serving_process
from tests.serving.waiting import wait_until

PATIENCE = 240.0


@dataclass
class WorkerSite:
    """Everything that carries out a request in earnest."""

    folder: Path
    settings: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> "WorkerSite":
        make_keys(folder / "keys", "signer")
        (folder / "store").mkdir()
        own = [f"store.url=file://{folder}/store", f"serving.tokens={folder}/tokens.json", "serving.poll_seconds=0.5"]
        site = cls(folder, [*SETTINGS, *key_settings(folder), *own, f"deletion.ledgers={folder}/ledgers"])
        params = load_params(None, site.settings)
        features.run(params, folder / "features")
        train.run(params, folder / "features", folder / "model")
        return site

    @property
    def trust_file(self) -> Path:
        return self.folder / "keys" / TRUST

    def token(self, *roles: Any) -> str:
        return TokenFile(self.folder / "tokens.json").new(f"client of {' and '.join(roles)}", roles)[0]

    @contextmanager
    def served(self, *arguments: str) -> Iterator[str]:
        """Run the server; yield its address. Its log is in serve.log."""
        options = ("--model", str(self.folder / "model"), *arguments, *repeated("--set", self.settings))
        with serving_process(self.folder / "serve.log", *options) as (url, process):
            yield url
        assert process.returncode == 0

    @property
    def worker(self) -> list[str]:
        return ["--worker", "--features", str(self.folder / "features")]


def call(url: str, token: str, document: object = None) -> dict[str, Any]:
    body = None if document is None else json.dumps(document).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:
        found: dict[str, Any] = json.load(response)
        return found


def wait_for_end(url: str, token: str, identifier: str) -> dict[str, Any]:
    """Wait until a request is carried out, one way or the other."""
    wait_until(lambda: call(f"{url}/requests/{identifier}", token)["state"] not in ("received", "running"), PATIENCE)
    return call(f"{url}/requests/{identifier}", token)
