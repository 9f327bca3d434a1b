"""`cpcmon run` with invalid configurations."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.conftest import BASE


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "monitor", "run", *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_configuration_problems_are_logged_one_per_line(tmp_path: Path) -> None:
    """In the selected format."""
    file = tmp_path / "config.yaml"
    file.write_text("colour: red\nmodels: []\n")
    ran = run("--config.file", file, "--log.format", "json", "--log.level", "warn")
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    assert ran.returncode == 2
    assert {event["level"] for event in events} == {"error"}
    assert events[0]["msg"].startswith(f"{file}:1: expected one of ")
    assert events[-1]["msg"] == f"{file}: {len(events) - 1} problems"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        pytest.param("http_server_config: {http2: false}\n", 0, "web.yml: valid", id="good"),
        pytest.param(
            "http_server_config: {http2: true}\n", 0, "web.yml:1: http_server_config.http2: cpcmon", id="remark"
        ),
        pytest.param("http_server_config: {http2: 7}\n", 2, "web.yml:1: http_server_config.http2: expected", id="bad"),
    ],
)
def test_check_includes_the_web_configuration(tmp_path: Path, text: str, code: int, message: str) -> None:
    config, web = tmp_path / "config.yaml", tmp_path / "web.yml"
    config.write_text(BASE.replace("    reference: density.ref\n", ""))
    web.write_text(text)
    ran = run("--config.check", "--config.file", config, "--web.config.file", web)
    assert (ran.returncode, message in ran.stdout + ran.stderr) == (code, True)
