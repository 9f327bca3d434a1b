"""Usage errors: one line with where, expected and found."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.state.state_folder import StateFolder
from tests.cli.conftest import NAMES, Example
from tests.conftest import Ran

CONFIG = "storage: {path: state}\nsources: [{name: a, type: directory, path: inbox}]\nmodels: [{name: density}]\n"


def test_home_and_variables_in_paths_are_expanded(
    example: Example, tmp_path: Path, cpcmon: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `--output=~/x`; a dollar sign in the name of an existing file is kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copy(example.site_b, tmp_path / "a$b.jsonl")
    for reference in ("~/d.ref", "$HOME/d.ref", "${HOME}/d.ref"):
        shutil.copy(example.reference, tmp_path / "d.ref")
        assert cpcmon("estimate", f"--reference={reference}", "--input=a$b.jsonl").code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("state folder", 2, "folder: expected the directory of `cpcmon watch --state`"),
        (
            "watch {site_b} --reference {reference} --state s",
            2,
            "expected a directory, found a file; use `cpcmon estimate`",
        ),
        (
            "rules --config.file config.yaml --output none/r.yml",
            2,
            "--output none/r.yml: expected a file in an existing directory",
        ),
        ("rules --config.file config.yaml --output config.yaml", 2, "expected a file other than the input"),
        (
            "calibrate --input {validation} --model m --level 95 --output m.ref",
            2,
            "--level: expected a number from 0.5",
        ),
        (
            "estimate --reference {site_b} --input {site_b}",
            2,
            "starts with 'cpcmon-reference', found another file",
        ),
        ("demo --directory config.yaml", 2, "--directory config.yaml: expected a folder, found a file: choose another"),
        ("demo --tour --directory config.yaml", 2, "--directory config.yaml: expected a folder, found a file: choose"),
        ("demo --directory config.yaml/demo", 2, "expected a folder, found that config.yaml is a file: choose another"),
        (
            "watch folder --reference {reference} --state config.yaml",
            2,
            "expected a folder, or permission to create one, found a file",
        ),
        ("watch folder --reference {reference} --state s --records 0", 2, "--records: expected 1 to"),
        (
            "watch folder --reference {reference} --state s --age 0s",
            2,
            "--age: expected a duration",
        ),
        (
            "watch folder --reference {reference} --state $NONE_SUCH/s",
            2,
            "the environment variable NONE_SUCH is not set",
        ),
        ("watch folder --reference {reference} --state ~none_such/s", 2, "no home directory is known for ~none_such"),
    ],
)
def test_a_usage_error_is_one_line_and_nothing_is_written(
    words: str,
    code: int,
    message: str,
    example: Example,
    tmp_path: Path,
    cpcmon: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("config.yaml").write_text(CONFIG, encoding="utf-8")
    names = {"site_b": example.site_b, "reference": example.reference, "validation": example.validation}
    ran = cpcmon(*words.format(**names).split())
    assert ran.code == code, ran.err
    assert message in ran.err
    assert "Errno" not in ran.err
    assert len(ran.err.splitlines()) == 1 + ("See `cpcmon" in ran.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "folder"]


def test_records_taken_for_a_reference_are_not_quoted(
    example: Example, tmp_path: Path, cpcmon: Callable[..., Ran]
) -> None:
    """The daemon logs the message, and records may contain patient names."""
    (tmp_path / "wrong.ref").write_text('{"patient": "Doe^Jane"}\n', encoding="utf-8")
    ran = cpcmon("estimate", "--reference", tmp_path / "wrong.ref", "--input", example.site_b)
    assert ran.code == 2
    assert "patient" not in ran.err


def test_a_state_in_use_exits_with_3(example: Example, tmp_path: Path, cpcmon: Callable[..., Ran]) -> None:
    held = StateFolder.hold(tmp_path / "state")
    (tmp_path / "inbox").mkdir()
    ran = cpcmon("watch", tmp_path / "inbox", "--reference", example.reference, "--state", tmp_path / "state", "--once")
    held.close()
    assert ran.code == 3
    assert f"locked by process {os.getpid()}" in ran.err


def test_a_port_in_use_exits_with_1(example_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["run", "--config.file", "config.yaml", "--web.listen-address", address]
        ran = subprocess.run(
            [sys.executable, "-m", "monitor", *words], cwd=example_folder, capture_output=True, text=True, check=False
        )
    assert ran.returncode == 1
    assert f"web: expected {address} to be free" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_classes_in_the_wrong_order_cause_a_warning(
    example: Example, tmp_path: Path, cpcmon: Callable[..., Ran]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(example.validation.read_text().splitlines(keepends=True)[:200]))
    names = ",".join(reversed(NAMES.split(",")))
    ran = cpcmon("calibrate", "--input", few, "--model", "m", "--classes", names, "--output", tmp_path / "m.ref")
    assert ran.code == 0
    assert "is below the largest class's share" in ran.out + ran.err


def test_ctrl_c_while_reading_exits_with_130(example: Example, tmp_path: Path) -> None:
    script = (
        "import signal, sys, monitor.cli.inputs as inputs, time; from monitor.__main__ import main\n"
        # A test run in the background ignores SIGINT, and its children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "inputs.read_file = lambda *_, **__: (print('reading', flush=True), time.sleep(600))\n"
        "sys.exit(main())"
    )
    words = ["calibrate", "--input", str(example.validation), "--model", "m", "--classes", NAMES, "--output", "m.ref"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "reading\n"
        os.kill(ran.pid, signal.SIGINT)
        _, said = ran.communicate(timeout=60)
    assert (ran.returncode, said) == (130, "cpcmon: interrupted\n")
    assert list(tmp_path.iterdir()) == []
