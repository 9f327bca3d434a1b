"""The README as a newcomer follows it: from a fresh copy of the tree, each command as it stands there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """Run a command as a user would, outside any environment, and return what it printed."""
    outside = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "MAKEFLAGS", "PYTHONPATH"}}
    ran = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_every_command_of_the_readme_works_from_a_fresh_clone(fresh: Path) -> None:
    """`make run` first, then calibrate, estimate and evaluate on its example, then the three lines of Python."""
    shell = blocks("sh")
    assert shell[0] == "make run\n"
    printed = [run(["bash", "-euc", block], fresh) for block in shell]
    assert "Open .demo/site_b.html" in printed[0]
    assert "wrote .demo/density.ref" in printed[1]
    assert "consensus" in printed[2]
    assert "| `consensus` |" in printed[3]
    assert "density site=B: 1,500 records, estimated accuracy" in printed[4]
    assert (fresh / ".demo/errors.svg").stat().st_size > 2000
    (python,) = blocks("python")
    assert len([line for line in python.splitlines() if line]) == 3
    assert "Estimate(accuracy=" in run([str(fresh / ".venv/bin/python"), "-c", python], fresh)
    # Nothing is left behind but the environment and the example.
    assert {path.name for path in fresh.iterdir()} - {path.name for path in ROOT.iterdir()} <= {".venv", ".demo"}


def test_the_readme_names_both_commands() -> None:
    """`make run` and `make test`, both of which exist."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"run", "test", "lint", "bench", "clean"} <= set(targets)
    assert "`make test`" in README


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
)
def test_every_path_a_page_names_exists(page: str) -> None:
    """Links, and paths in backticks that start in our tree."""
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [(ROOT / page).parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    paths = [ROOT / path for path in re.findall(r"`((?:monitor|tests|docs|benchmarks)/[\w/.-]+)`", text)]
    assert [str(path) for path in [*links, *paths] if not path.exists() and "your_" not in path.name] == []
