"""docs/commands.md: every command with every option, as the parsers have them, and an example that runs."""

import re
import shlex
from argparse import Action, ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli import make_parser
from monitor.cli.parser import actions_of, commands_of, described, examples_of
from tests.cli.examples import ended
from tests.conftest import Ran
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
COMMANDS = commands_of(make_parser())


def row(action: Action) -> str:
    """Return the row of an option, or of a word without a name."""
    value = (
        "" if action.nargs == 0 else str(action.metavar or "|".join(map(str, action.choices or [action.dest.upper()])))
    )
    more = " …" if action.nargs == "+" else ""
    name = " ".join([", ".join(action.option_strings), value]).strip() + more
    needed = "**needed**. " if action.required and action.option_strings else ""
    text = described(action) % {"default": action.default, "prog": "cpcmon"}
    name, text = (part.replace("|", r"\|") for part in (name, text))
    return f"| `{name}` | {needed}{text} |"


def section(name: str) -> str:
    """Return what the page says of a command."""
    found = re.search(rf"^## `cpcmon {name}`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/commands.md: add a section\n{written(name, COMMANDS[name])}"
    return found[1]


def written(name: str, parser: ArgumentParser) -> str:
    """Return a whole section, ready to be put on the page."""
    rows = "\n".join(row(action) for action in actions_of(parser))
    examples = "\n".join(examples_of(parser))
    return f"## `cpcmon {name}`\n\n{parser.description}\n\n| option | |\n|---|---|\n{rows}\n\n```sh\n{examples}\n```\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_a_command_is_that_of_its_parser(name: str) -> None:
    """In the parser's order, with its words; the message is what to write."""
    rows = [row(action) for action in actions_of(COMMANDS[name])]
    found = [line for line in section(name).splitlines() if line.startswith("| `")]
    missing = "\n".join(line for line in rows if line not in found)
    extra = "\n".join(line for line in found if line not in rows)
    assert found == rows, f"docs/commands.md, `cpcmon {name}`:\nadd\n{missing}\nremove\n{extra}"


def test_the_page_has_no_command_that_is_gone() -> None:
    """Sections are those of the parsers, in the order of the help."""
    assert re.findall(r"^## `cpcmon (\S+)`$", PAGE, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_page_run(
    name: str, example_folder: Path, cpcmon: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with the files that they name; those that the help has too are run by `tests/cli/test_help.py`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", section(name), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("cpcmon ")]
    assert lines
    monkeypatch.chdir(example_folder)
    for line in lines:
        words = ended(shlex.split(line, comments=True)[1:])
        if line not in examples_of(COMMANDS[name]) and words is not None and "|" not in words:
            ran = cpcmon(*words)
            assert ran.code == 0, f"{line}\n{ran.err}"


def test_the_exit_codes_are_those_of_the_help() -> None:
    """One list, in both places."""
    of_help = re.findall(r"^  (\d+)  +(.+)$", make_parser().epilog or "", re.MULTILINE)
    assert re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE) == of_help
