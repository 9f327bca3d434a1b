"""Tests of missing programs are skipped with a message, and fail in CI."""

import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.servers import real_server

_CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
_INSTALLED = {
    name
    for line in re.findall(r"^command -v ([\w.-]+) .*missing\+=\(([^)]+)\)", _CI, re.MULTILINE)
    for name in " ".join(line).split()
}
"""Programs that CI checks for, and their packages."""


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def test_a_missing_program_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    for name in ("zsh", "fish", "promtool"):
        with pytest.raises(pytest.fail.Exception, match=f"{name.upper()} IS NOT INSTALLED"):
            real_server(name)


def test_a_missing_program_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="FISH IS NOT INSTALLED: the test cannot run"):
        real_server("fish")


def test_ci_installs_the_programs_of_the_tests() -> None:
    """Except for those of every Debian."""
    asked = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'real_server\("([\w.-]+)"\)', file.read_text(encoding="utf-8"))
    }
    shells = {"zsh", "fish"}
    assert asked
    assert (asked | shells) - _INSTALLED == set()
