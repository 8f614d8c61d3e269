"""Prometheus and its Pushgateway, each with storage of its own."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.servers.process import answers, free_port, need, running, wait_until

_CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: pushgateway
    honor_labels: true
    static_configs:
      - targets: ["{target}"]
"""


@contextmanager
def push_gateway(folder: Path) -> Iterator[str]:
    """Run a Pushgateway that remembers nothing after it; yields its URL."""
    need("prometheus-pushgateway")
    folder.mkdir(parents=True, exist_ok=True)
    address, log = f"127.0.0.1:{free_port()}", folder / "pushgateway.log"
    # Debian's wrapper names a file shared by all gateways of the machine.
    with running(["prometheus-pushgateway", f"--web.listen-address={address}", "--persistence.file="], log) as process:
        wait_until(lambda: answers(f"http://{address}/-/ready"), process, log)
        yield f"http://{address}"


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def value(self, query: str, seconds: float = 30) -> float:
        """Return the value of a query with one result, as soon as there is one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            parameters = urllib.parse.urlencode({"query": query})
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=5) as response:
                results = json.load(response)["data"]["result"]
            if results:
                (result,) = results
                return float(result["value"][1])
            time.sleep(0.2)
        raise TimeoutError(f"{query} has no value after {seconds} s")


@contextmanager
def prometheus_server(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run a Prometheus that looks at the gateway `target` every second."""
    need("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    address, log, config = f"127.0.0.1:{free_port()}", folder / "prometheus.log", folder / "prometheus.yml"
    config.write_text(_CONFIG.format(target=urllib.parse.urlsplit(target).netloc))
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
