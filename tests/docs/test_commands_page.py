"""docs/commands.md: exit codes and sections come from the parsers.

`python -m tests.docs.test_commands_page` updates them.
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
    """Return the page, with exit codes and sections from the parsers."""
    parser = make_parser()
    codes = re.findall(r"^  (\d+)  +(.+)$", parser.epilog or "", re.MULTILINE)
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in codes)
    head = re.sub(r"(^\| \d+ \|.*\n)+", rows, HEAD, count=1, flags=re.MULTILINE)
    return head + "".join(_section(name, command) for name, command in commands_of(parser).items())


def test_the_page_is_that_of_the_parsers() -> None:
    """`tests/cli/test_help.py` runs the examples."""
    assert expected() == PAGE, "run `python -m tests.docs.test_commands_page`"


if __name__ == "__main__":
    FILE.write_text(expected(), encoding="utf-8")
