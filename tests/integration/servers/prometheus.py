"""Prometheus and its Pushgateway, each with its own storage."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.servers.process import answers, free_port, need, running, wait_until

Found = TypeVar("Found")


@contextmanager
def push_gateway(folder: Path, address: str | None = None) -> Iterator[str]:
    """Run a Pushgateway without persistence on `address` or a free loopback port; yields its URL."""
    need("prometheus-pushgateway")
    folder.mkdir(parents=True, exist_ok=True)
    address, log = address or f"127.0.0.1:{free_port()}", folder / "pushgateway.log"
    # Debian's wrapper names a file shared by all gateways of the machine.
    with running(["prometheus-pushgateway", f"--web.listen-address={address}", "--persistence.file="], log) as process:
        wait_until(lambda: answers(f"http://{address}/-/ready"), process, log)
        yield f"http://{address}"


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def value(self, query: str, seconds: float = 30) -> float:
        """Wait for one result of a query, and return its value."""
        (result,) = self._until(lambda: self.results(query), f"{query} has no value", seconds)
        return float(result["value"][1])

    def results(self, query: str) -> list[dict[str, Any]]:
        """Return the results of a query now."""
        parameters = urllib.parse.urlencode({"query": query})
        results: list[dict[str, Any]] = self._get(f"query?{parameters}")["result"]
        return results

    def wait_for_alert(self, name: str, *, firing: bool = True, seconds: float = 60) -> None:
        """Wait until an alert fires, or is resolved."""
        state = "does not fire" if firing else "still fires"
        self._until(lambda: (name in self.firing()) == firing, f"{name} {state}", seconds)

    def firing(self) -> set[str]:
        """Return the alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as response:
            data: dict[str, Any] = json.load(response)["data"]
            return data

    def _until(self, look: Callable[[], Found], what: str, seconds: float) -> Found:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := look():
                return found
            time.sleep(0.2)
        raise TimeoutError(f"{what} after {seconds} s")


@contextmanager
def prometheus_server(folder: Path, *targets: str, rules: Path | None = None) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the `targets` (URLs) and evaluates the `rules` every second."""
    need("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    address, log, config = f"127.0.0.1:{free_port()}", folder / "prometheus.log", folder / "prometheus.yml"
    hosts = [urllib.parse.urlsplit(target).netloc for target in targets]
    scraped = {"job_name": "scraped", "honor_labels": True, "static_configs": [{"targets": hosts}]}
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [scraped],
    }
    config.write_text(json.dumps(settings))  # YAML, too
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with running(command, log) as process:
        wait_until(lambda: answers(f"http://{address}/-/ready"), process, log)
        yield Prometheus(f"http://{address}")
