"""docs/commands.md: the sections of the commands come from the parsers.

`python -m tests.docs.test_commands_page` writes them again.
"""

import re
from argparse import Action, ArgumentParser

from monitor.cli import make_parser
from monitor.cli.parser import actions_of, commands_of, described, examples_of
from tests.conftest import ROOT

FILE = ROOT / "docs" / "commands.md"
PAGE = FILE.read_text(encoding="utf-8")
HEAD = PAGE.partition("\n## `cpcmon ")[0]


def _row(action: Action) -> str:
    """Return the row of an option or a positional argument."""
    value = (
        "" if action.nargs == 0 else str(action.metavar or "|".join(map(str, action.choices or [action.dest.upper()])))
    )
    more = " …" if action.nargs == "+" else ""
    name = " ".join([", ".join(action.option_strings), value]).strip() + more
    required = "**required**. " if action.required and action.option_strings else ""
    text = described(action) % {"default": action.default, "prog": "cpcmon"}
    name, text = (part.replace("|", r"\|") for part in (name, text))
    return f"| `{name}` | {required}{text} |"


def _section(name: str, parser: ArgumentParser) -> str:
    rows = "\n".join(_row(action) for action in actions_of(parser))
    examples = "\n".join(examples_of(parser))
    return (
        f"\n## `cpcmon {name}`\n\n{parser.description}\n\n| Option | |\n|---|---|\n{rows}\n\n```sh\n{examples}\n```\n"
    )


def expected() -> str:
    """Return the page, with the sections written from the parsers."""
    return HEAD + "".join(_section(name, parser) for name, parser in commands_of(make_parser()).items())


def test_the_sections_are_those_of_the_parsers() -> None:
    """`tests/cli/test_help.py` runs the examples."""
    assert expected() == PAGE, "run `python -m tests.docs.test_commands_page`"


def test_the_exit_codes_are_those_of_the_help() -> None:
    of_help = re.findall(r"^  (\d+)  +(.+)$", make_parser().epilog or "", re.MULTILINE)
    assert re.findall(r"^\| (\d+) \| (.+) \|$", HEAD, re.MULTILINE) == of_help


if __name__ == "__main__":
    FILE.write_text(expected(), encoding="utf-8")
