"""The command as a whole: help, version, exit codes, interruption."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Example
from tests.conftest import Ran


def test_the_version_is_that_of_the_distribution(cpcmon: Callable[..., Ran]) -> None:
    """It lives in one place."""
    assert cpcmon("--version").out == f"cpcmon {version('cpcmon')}\n"


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["estimate"], ["estimate", "--output", "xml"]])
def test_usage_errors_exit_2(cpcmon: Callable[..., Ran], arguments: list[str]) -> None:
    """As argparse does."""
    assert cpcmon(*arguments).code == 2


def test_python_m_monitor_is_the_same_command() -> None:
    """For those without the script on their path."""
    ran = subprocess.run([sys.executable, "-m", "monitor", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"cpcmon {version('cpcmon')}\n"


def test_a_reader_that_has_seen_enough_is_no_error(example: Example) -> None:
    """`cpcmon estimate … | head -1` leaves no traceback."""
    script = f"{sys.executable} -m monitor estimate --reference {example.reference} --input {example.site_b} --window 1 --minimum-records 1 | head -1"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    assert ran.stderr == ""


def test_a_disk_that_fills_up_fails_with_1_and_leaves_nothing(example: Example, tmp_path: Path) -> None:
    """A limit on the size of files stands for it: that is said in a sentence, and no half file stays behind."""
    words = f"--input {example.validation} --classes fatty,scattered,heterogeneous,dense --model m"
    script = f"ulimit -f 8; {sys.executable} -m monitor calibrate {words} --output {tmp_path}/d.ref"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_closed_output_is_no_traceback(example: Example) -> None:
    """`cpcmon … >&-`."""
    script = f"{sys.executable} -m monitor estimate --reference {example.reference} --input {example.site_b} >&-"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr


def test_importing_the_core_needs_no_optional_library() -> None:
    """The extras are loaded only by those who use them."""
    code = "import sys, monitor.cli; sys.exit(any(name in sys.modules for name in ('pyarrow', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
