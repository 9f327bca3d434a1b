"""`cpcmon rules`, from a configuration file to a rule file that promtool accepts."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

CONFIG = """
storage: {path: state}
sources:
  - {name: results, type: directory, path: inbox}
models:
  - name: density
    reference: density.ref
    alerts:
      - {name: accuracy_low, below: 0.8, severity: critical}
      - {name: silent, after: 2h}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file; its reference and folders need not exist."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_it_writes_rules_that_promtool_accepts(
    cpcmon: Callable[..., Ran], config: Path, promtool: Path, tmp_path: Path
) -> None:
    """To a file or to standard output."""
    output = tmp_path / "rules.yml"
    assert cpcmon("rules", "--config.file", config, "--output", output).code == 0
    assert cpcmon("rules", "--config.file", config).out == output.read_text()
    checked = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", output], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert 'alert=\\"silent\\"' in output.read_text()


def test_a_bad_configuration_writes_nothing(cpcmon: Callable[..., Ran], config: Path, tmp_path: Path) -> None:
    """Exit code 2, and the previous rules stay."""
    config.write_text(CONFIG.replace("below: 0.8", "below: 80"))
    output = tmp_path / "rules.yml"
    output.write_text("before")
    ran = cpcmon("rules", "--config.file", config, "--output", output)
    assert ran.code == 2
    assert "below" in ran.err
    assert output.read_text() == "before"


def test_a_job_that_is_no_regular_expression_is_rejected(cpcmon: Callable[..., Ran], config: Path) -> None:
    """Prometheus would reject the whole file."""
    ran = cpcmon("rules", "--config.file", config, "--job", "cpcmon(")
    assert ran.code == 2
    assert ran.err.startswith("cpcmon: --job: expected a regular expression, found 'cpcmon('")


def test_an_unwritable_folder_is_reported(cpcmon: Callable[..., Ran], config: Path, tmp_path: Path) -> None:
    """Exit code 2."""
    ran = cpcmon("rules", "--config.file", config, "--output", tmp_path / "nowhere" / "rules.yml")
    assert ran.code == 2
    assert "nowhere" in ran.err


def test_missing_runbook_links_cause_a_warning(cpcmon: Callable[..., Ran], config: Path) -> None:
    """The rules are written all the same."""
    ran = cpcmon("rules", "--config.file", config)
    assert ran.code == 0
    assert "links.runbooks: not set" in ran.err
    assert "runbook_url" not in ran.out
    config.write_text(f"links: {{runbooks: https://wiki.example/cpcmon}}\n{CONFIG}")
    linked = cpcmon("rules", "--config.file", config)
    assert (linked.code, linked.err) == (0, "")
    assert 'runbook_url: "https://wiki.example/cpcmon/accuracy.md"' in linked.out


def test_a_failed_write_keeps_the_previous_rules(config: Path, tmp_path: Path) -> None:
    """A full disk, here a limit on file size. Prometheus does not start with half a rule file."""
    output = tmp_path / "rules.yml"
    output.write_text("before")
    ran = subprocess.run(
        [sys.executable, "-m", "monitor", "rules", "--config.file", config, "--output", output],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "File too large" in ran.stderr
    assert output.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "rules.yml"}
