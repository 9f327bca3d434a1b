"""Shell blocks on pages: this module runs those that need only a daemon; a table names the tests of the others."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES, Page
from tests.prometheus.running import free_port, running
from tests.servers import real_server

HERE = "tests/docs/test_typed_blocks.py"
_CLUSTER = "not run: needs a cluster or a registry; tests/kubernetes checks the manifests"
_CHECKED = "not run: changes the machine; its files are checked by "

# page -> start of a block -> the test that runs it, or why none does
RUN_BY = {
    "README.md": {"": "tests/package/test_readme.py"},
    "docs/alerts.md": {"cpcmon baseline": "tests/daemon/test_baseline_command.py"},
    "docs/api.md": {"curl": HERE},
    "docs/baselines.md": {"": "tests/daemon/test_baseline_command.py"},
    "docs/commands.md": {"": "tests/docs/test_commands_page.py"},
    "docs/configuration.md": {"cpcmon check-config": HERE},
    "docs/deployment.md": {"": "tests/systemd/test_deployment_page.py"},
    "docs/directory.md": {"cp result.jsonl": "tests/sources/directory/test_directory_page.py"},
    "docs/grafana.md": {
        "install": _CHECKED + "tests/grafana/test_grafana_page.py",
        ".venv/bin/python -m deploy.grafana.dashboard": HERE,
    },
    "docs/labels.md": {"cpcmon": "tests/daemon/test_ids.py"},
    "docs/kafka.md": {"$ kafka-acls": "not run: a program of the broker"},
    "docs/kubernetes.md": {"podman": "tests/kubernetes/test_image.py", "": _CLUSTER},
    "docs/notify.md": {"cpcmon notify": "tests/sinks/test_notify_page.py"},
    "docs/plan.md": {"cpcmon plan": HERE},
    "docs/prometheus.md": {
        "cp deploy": HERE,
        "cpcmon rules": HERE,
        "promtool test": "tests/rules/test_shipped_rules.py",
    },
    "docs/troubleshooting.md": {"$ cpcmon check-config": HERE},
}


def blocks(page: Page) -> list[str]:
    """Return the shell blocks of a page, without indentation."""
    return [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in page.blocks("sh", "bash", "console")]


def by(page: str, block: str) -> str | None:
    """Return the test that runs a block, by the longest matching start."""
    fitting = [begins for begins in RUN_BY.get(page, {}) if block.startswith(begins)]
    return RUN_BY[page][max(fitting, key=len)] if fitting else None


OURS = [(name, block) for name, page in PAGES.items() for block in blocks(page) if by(name, block) == HERE]


def test_every_block_is_in_the_table() -> None:
    unrun = [(name, block) for name, page in PAGES.items() for block in blocks(page) if by(name, block) is None]
    assert unrun == []


def test_the_entries_of_the_table_exist() -> None:
    for name, rows in RUN_BY.items():
        for begins, who in rows.items():
            assert any(block.startswith(begins) for block in blocks(PAGES[name])), (name, begins)
            (test,) = re.findall(r"tests/[\w/.]+", who) or [HERE]
            assert (ROOT / test).exists(), test


@pytest.fixture(scope="module")
def daemon(example_folder: Path) -> Iterator[str]:
    """Run a daemon on the example; return its address, which replaces the default one in blocks."""
    address = f"127.0.0.1:{free_port()}"
    words = (sys.executable, "-m", "monitor", "run", "--config.file", "config.yaml", "--web.listen-address", address)
    with running(f"http://{address}/-/ready", example_folder / "daemon.log", *words):
        yield address


@pytest.mark.parametrize(("page", "block"), OURS, ids=[f"{page}: {block.splitlines()[0]}" for page, block in OURS])
def test_a_block_runs(page: str, block: str, daemon: str, example_folder: Path, tmp_path: Path) -> None:
    """In a directory with the example, and with other paths and another port than on the page."""
    for program in ("curl", "promtool"):
        if program in block:
            real_server(program)
    text = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "deploy" / "prometheus" / "prometheus.yml", tmp_path)
    for name in ("config.yaml", "density.ref", "outputs.jsonl"):
        shutil.copy(example_folder / name, tmp_path)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cpcmon").write_text(f'#!/bin/sh\nexec {sys.executable} -m monitor "$@"\n')
    (tmp_path / "bin" / "cpcmon").chmod(0o755)
    for shown, here in (
        ("127.0.0.1:9877", daemon),
        ("curl -s ", "curl -sf "),  # so that an HTTP error fails the block
        ("/etc/prometheus", str(tmp_path)),
        ("/etc/cpcmon", str(tmp_path)),
        (".venv/bin/python", sys.executable),
    ):
        text = text.replace(shown, here)
    changed = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}"}
    ran = subprocess.run(
        ["sh", "-ec", text], cwd=tmp_path, env=os.environ | changed, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{page}\n{text}\n{ran.stdout}\n{ran.stderr}"
    if "/api/v1/" in block:
        assert "density" in ran.stdout
