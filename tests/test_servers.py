"""A program that is missing is never passed over in silence."""

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
"""Programs that are looked for, and packages."""


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def test_in_ci_a_missing_program_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zsh and fish among them: their completion is typed into the real shells."""
    monkeypatch.setenv("CI", "true")
    for name in ("zsh", "fish", "promtool"):
        with pytest.raises(pytest.fail.Exception, match=f"{name.upper()} IS NOT INSTALLED"):
            real_server(name)


def test_elsewhere_it_is_skipped_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name in capitals, to be seen in the list of what was skipped."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="FISH IS NOT INSTALLED: what it would show is not shown"):
        real_server("fish")


def test_what_tests_ask_for_is_installed_by_ci() -> None:
    """Bash and what every Debian has are there before."""
    asked = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'real_server\("([\w.-]+)"\)', file.read_text(encoding="utf-8"))
    }
    shells = {"zsh", "fish"}
    assert asked
    assert (asked | shells) - _INSTALLED == set()
