"""The compose file, without a registry: its schema, its files, and its feed on a real broker."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.daemon.process import running
from tests.kafka.topics import Topics, unique
from tests.kubernetes.rendering import DEPLOY, Renderer

FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"


def _services() -> dict[str, Any]:
    found = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    assert isinstance(found, dict)
    return found


def _mounted(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Return sources and targets of the mounts."""
    return [(source, target) for source, target, *_ in (entry.split(":") for entry in service["volumes"])]


def test_compose_accepts_the_file(render: Renderer) -> None:
    render.run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE))


def test_an_unknown_key_is_found(render: Renderer, tmp_path: Path) -> None:
    """The test above can fail."""
    (tmp_path / "compose.yaml").write_text(FILE.read_text(encoding="utf-8").replace("cap_drop", "cap_drops"))
    words = ("--builtin-schema", "vendor.compose-spec", str(tmp_path / "compose.yaml"))
    assert render.run("check-jsonschema", *words, check=False).returncode != 0


def test_all_services_are_there_and_share_a_network() -> None:
    services = _services()
    assert services.keys() == {"kafka", "prepare", "feed", "cpcmon", "prometheus", "alertmanager", "grafana"}
    # Services on the network of kafka find the others on localhost.
    assert {services[name]["network_mode"] for name in services if name != "kafka"} == {"service:kafka", "none"}
    volumes = set(yaml.safe_load(FILE.read_text(encoding="utf-8"))["volumes"])
    named = {source for service in services.values() for source, _ in _mounted(service) if not source.startswith(".")}
    assert named == volumes


def test_ports_are_open_on_loopback_only() -> None:
    ports = [port for service in _services().values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_mounted_file_exists() -> None:
    """The engine would create an empty folder for a missing file."""
    sources = {source for service in _services().values() for source, _ in _mounted(service) if source.startswith(".")}
    named = {"../prometheus/prometheus.yml", "../alertmanager/alertmanager.yml", *sources}
    assert all((FOLDER / name).exists() for name in named)


@pytest.mark.slow
def test_the_feed_reaches_the_daemon(kafka: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real broker, the commands of the feed, and the real daemon with the configuration of the compose file."""
    topic = unique("feed")
    kafka.create_topic(topic, 3)
    feed = [sys.executable, str(FOLDER / "feed.py")]
    monkeypatch.setattr(sys, "argv", ["feed.py", "prepare", "--directory", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(feed[1], run_name="__main__")
    words = ["--brokers", kafka.bootstrap, "--topic", topic, "--rate", "1000", "--shift-after", "0", "--count", "1000"]
    subprocess.run([*feed, "send", "--directory", str(tmp_path), *words], check=True, capture_output=True, timeout=240)
    config = _for_here(
        (FOLDER / "config" / "config.yaml").read_text(encoding="utf-8"), kafka.bootstrap, topic, tmp_path
    )
    with running(config) as process:
        process.wait_for('cpcmon_window_records{model="density",segment="all"}', 1000.0)
        page = process.wait_for('cpcmon_estimate_valid{model="density",segment="site=B"}', 1.0)
        name = 'cpcmon_estimated_accuracy_ratio{{estimator="adaptive",model="density",segment="site={}"}}'
        assert page[name.format("B")] < page[name.format("A")] - 0.05


def _for_here(text: str, bootstrap: str, topic: str, folder: Path) -> Path:
    services = _services()
    for source, target in _mounted(services["cpcmon"]):
        if not source.startswith("."):
            where = folder if source == "example" else folder / source
            where.mkdir(exist_ok=True)
            text = re.sub(rf"{target}(?=/)", str(where), text)
    assert "localhost:9092" in text
    text = text.replace("localhost:9092", bootstrap).replace("[predictions]", f"[{topic}]")
    file = folder / "for-here.yaml"
    file.write_text(text.replace("group: cpcmon", f"group: {topic}"), encoding="utf-8")
    return file


def test_the_services_of_cpcmon_are_built_from_the_dockerfile() -> None:
    services = _services()
    for name in ("prepare", "feed", "cpcmon"):
        build = services[name]["build"]
        assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == ROOT / "deploy" / "docker" / "Dockerfile"
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
