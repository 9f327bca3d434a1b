"""What newcomers get wrong on the command line: one sentence, with where, what was expected and what was found."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import NAMES, Example
from tests.conftest import Ran

CONFIG = "storage: {path: state}\nsources: [{name: a, type: directory, path: inbox}]\nmodels: [{name: density}]\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("state folder", 2, "folder: expected the folder of `cpcmon watch --state`, or of storage.path in a"),
        (
            "watch {site_b} --reference {reference} --state s",
            2,
            "expected a directory to follow, found a file; for one",
        ),
        (
            "rules --config.file config.yaml --output none/r.yml",
            2,
            "--output none/r.yml: expected a file in a directory",
        ),
        ("rules --config.file config.yaml --output config.yaml", 2, "expected another file than the input"),
        (
            "calibrate --input {validation} --model m --level 95 --output m.ref",
            2,
            "--level: expected a number from 0.5",
        ),
        (
            "estimate --reference {site_b} --input {site_b}",
            2,
            "starts with 'cpcmon-reference', found one that does not",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence_and_nothing_is_written(
    words: str,
    code: int,
    said: str,
    example: Example,
    tmp_path: Path,
    cpcmon: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each was once a number of an error, a name of a setting, or a quotation from the file."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("config.yaml").write_text(CONFIG, encoding="utf-8")
    names = {"site_b": example.site_b, "reference": example.reference, "validation": example.validation}
    ran = cpcmon(*words.format(**names).split())
    assert ran.code == code, ran.err
    assert said in ran.err
    assert "Errno" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "folder"]


def test_records_taken_for_a_reference_are_not_quoted(
    example: Example, tmp_path: Path, cpcmon: Callable[..., Ran]
) -> None:
    """The message is logged by the daemon too, and records may name patients."""
    (tmp_path / "wrong.ref").write_text('{"patient": "Doe^Jane"}\n', encoding="utf-8")
    ran = cpcmon("estimate", "--reference", tmp_path / "wrong.ref", "--input", example.site_b)
    assert ran.code == 2
    assert "patient" not in ran.err


def test_ctrl_c_in_the_middle_says_so_and_leaves_nothing(example: Example, tmp_path: Path) -> None:
    """While a file is read; exit code 130, no traceback."""
    script = (
        "import sys, monitor.cli.inputs as inputs, time; from monitor.cli import main\n"
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
