"""docker/compose.yaml: health checks, no root user, only files of the repository, and a set-up that works."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mbd.cli import group
from mbd.params import load_params

FOLDER = Path(__file__).parents[2] / "docker"
FILE = FOLDER / "compose.yaml"
STACK = {"s3", "setup", "serve", "mbd-exporter", "mbd", "pushgateway", "prometheus", "grafana"}
WITHOUT_HEALTH = {"setup", "mbd", "s3"}  # two end, and the set-up waits for the third
KNOWN_KEYS = {
    *("image", "user", "command", "entrypoint", "environment", "volumes", "configs", "tmpfs", "ports", "profiles"),
    *("read_only", "cap_drop", "security_opt", "restart", "healthcheck", "depends_on"),
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_the_stack_is_complete_and_has_only_keys_of_compose(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == STACK
    assert {key for service in services.values() for key in service} <= KNOWN_KEYS


def test_every_image_and_password_has_a_default_that_the_environment_can_replace(
    services: dict[str, dict[str, Any]],
) -> None:
    for name, service in services.items():
        assert re.fullmatch(r"\$\{\w+_IMAGE:-[\w./-]+:[\w.-]+}", service["image"]), name
    example = dict(
        line.split("=", 1) for line in (FOLDER / "compose.env.example").read_text().splitlines() if "=" in line
    )
    assert set(example) == set(re.findall(r"\$\{(\w+):-", FILE.read_text()))
    assert all(value.endswith("sha256:") for name, value in example.items() if name.endswith("_IMAGE"))


def test_what_is_remembered_of_the_log_outlives_each_container(services: dict[str, dict[str, Any]]) -> None:
    for name in ("setup", "serve", "mbd", "mbd-exporter"):
        (volume,) = services[name]["volumes"]
        assert services[name]["environment"]["XDG_CACHE_HOME"].startswith(volume.partition(":")[2] + "/"), name


def test_no_service_runs_as_root_and_only_volumes_are_writable(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert int(service["user"].partition(":")[0]) > 0, name
        assert service["read_only"] is True, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_every_long_running_service_has_a_health_check(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert (name in WITHOUT_HEALTH) == ("healthcheck" not in service), name
        for other, how in service.get("depends_on", {}).items():
            assert (how["condition"] == "service_started") == (other in WITHOUT_HEALTH - {"setup"})
            assert other in services


def test_mounted_files_exist(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if not source.startswith("."):
                assert source in compose["volumes"], name
            elif "build/" not in source:  # files below build/ are created by the user
                assert (FOLDER / source).is_file(), name
                assert rest.endswith(":ro")
        assert {entry["source"] for entry in service.get("configs", [])} <= set(compose["configs"])


def test_the_targets_of_prometheus_are_services(services: dict[str, dict[str, Any]]) -> None:
    config = yaml.safe_load((FOLDER / "../deploy/prometheus/prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            name, _, port = target.partition(":")
            assert f"127.0.0.1:{port}:{port}" in services[name]["ports"]


def test_commands_are_valid(services: dict[str, dict[str, Any]]) -> None:
    for name in ("serve", "mbd-exporter"):
        shown = CliRunner().invoke(group, [*services[name]["command"], "--help"])
        assert shown.exit_code == 0, shown.output


def test_the_parameters_are_valid(compose: dict[str, Any]) -> None:
    Path("params.yaml").write_text(compose["configs"]["params"]["content"])
    params = load_params(Path("params.yaml"))
    assert params.monitoring.mode == "push"
    assert params.serving.inference.models == (params.certificate.model,)


def _has_compose() -> bool:
    asked = ["docker", "compose", "version"]
    return (
        shutil.which("docker") is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _has_compose(), reason="docker compose is not installed")
def test_docker_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "--file", str(FILE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
