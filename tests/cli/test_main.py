"""The command line: version, exit codes, imports, interruption."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from monitor.cli.parser import Parser
from tests.cli.conftest import NAMES, Example
from tests.conftest import Ran


def few_of(example: Example, path: Path) -> Path:
    """Write the first labelled records, which are quick to calibrate."""
    path.write_text("".join(example.validation.read_text().splitlines(keepends=True)[:40]))
    return path


def test_the_version_is_that_of_the_distribution(cpcmon: Callable[..., Ran]) -> None:
    assert cpcmon("--version").out == f"cpcmon {version('cpcmon')}\n"


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["estimate"], ["estimate", "--output", "xml"]])
def test_usage_errors_exit_2(cpcmon: Callable[..., Ran], arguments: list[str]) -> None:
    assert cpcmon(*arguments).code == 2


def test_an_error_without_an_argument_names_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newer versions of argparse raise it for missing arguments."""

    def missing(*_: object) -> None:
        raise argparse.ArgumentError(None, "the following arguments are required: --input")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", missing)
    with pytest.raises(SystemExit, match="2"):
        Parser(prog="cpcmon calibrate").parse_known_args([])
    assert capsys.readouterr().err.startswith("cpcmon calibrate: expected --input, found none\n")


def test_python_m_monitor_is_the_same_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "monitor", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"cpcmon {version('cpcmon')}\n"


def test_a_closed_pipe_is_not_an_error(example: Example) -> None:
    """As in `cpcmon estimate … | head -1`."""
    script = f"{sys.executable} -m monitor estimate --reference {example.reference} --input {example.site_b} --window 1 --minimum-records 1 | head -1"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    assert ran.stderr == ""


def test_a_full_disk_exits_with_1_and_leaves_no_file(example: Example, tmp_path: Path) -> None:
    """Simulated by a limit on file sizes."""
    words = f"--input {few_of(example, tmp_path / 'few.jsonl')} --classes {NAMES} --model m"
    script = f"ulimit -f 8; {sys.executable} -m monitor calibrate {words} --output {tmp_path}/d.ref"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["few.jsonl"]


def test_a_closed_output_causes_no_traceback(example: Example) -> None:
    """`cpcmon … >&-`."""
    script = f"{sys.executable} -m monitor estimate --reference {example.reference} --input {example.site_b} >&-"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr


IMPORTED = """
import sys
from monitor.cli import main
try:
    main()
except SystemExit:
    pass
libraries = "apscheduler asyncio bcrypt h11 jinja2 kafka matplotlib numpy prometheus_client pyarrow scipy yaml".split()
print("imported", *(name for name in libraries if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        ("--version", ""),
        ("--help", ""),
        ("run --help", ""),
        ("help run", ""),
        ("calibrate --input {validation} --classes {classes} --model m --output {output}", "numpy scipy"),
        ("estimate --reference {reference} --input {site_b}", "numpy"),
        ("check-config {config}", "numpy yaml"),
        ("rules --config.file {config}", "numpy yaml"),
        ("completion bash", "numpy yaml"),
    ],
)
def test_a_command_imports_only_the_libraries_that_it_uses(
    words: str, libraries: str, example: Example, example_folder: Path, tmp_path: Path
) -> None:
    """Kafka's client, the web server and the extras are slow to import."""
    places = {
        "validation": few_of(example, tmp_path / "few.jsonl"),
        "reference": example.reference,
        "site_b": example.site_b,
    }
    places |= {"config": example_folder / "config.yaml", "output": tmp_path / "m.ref"}
    typed = words.format(**places, classes=NAMES).split()
    ran = subprocess.run([sys.executable, "-c", IMPORTED, *typed], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1].split() == ["imported", *libraries.split()]


# SIGINT at the n-th import after that of monitor.cli; at 0, when the interpreter exits.
INTERRUPTED = """
import atexit, os, runpy, signal, sys
place, seen = int(sys.argv.pop(1)), 0
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
def count(event, arguments):
    global seen
    if event == "import" and ("monitor.cli" in sys.modules or arguments[0] == "monitor.cli"):
        seen += 1
        if seen == place:
            interrupt()
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(count)
if place == 0:
    atexit.register(interrupt)
runpy.run_module("monitor", run_name="__main__")
"""


@pytest.mark.parametrize("place", [0, 1, 100])
@pytest.mark.parametrize(
    "words", ["--version", "estimate --reference {reference} --input {site_b}", "check-config {config}"]
)
def test_ctrl_c_at_start_and_exit_causes_no_traceback(
    words: str, place: int, example: Example, example_folder: Path
) -> None:
    config = example_folder / "config.yaml"
    typed = words.format(reference=example.reference, site_b=example.site_b, config=config).split()
    command = [sys.executable, "-c", INTERRUPTED, str(place), *typed]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    assert "KeyboardInterrupt" not in ran.stderr
    assert ran.returncode in ({-signal.SIGINT} if place < 30 else {-signal.SIGINT, 130, 0})
