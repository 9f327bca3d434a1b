"""`cpcmon help COMMAND`: the same as `cpcmon COMMAND --help`, for those who ask in this order."""

import argparse
from typing import Any

from monitor.cli.parser import commands_of
from monitor.errors import UsageError


def register(commands: Any) -> None:  # noqa: ANN401  argparse's own type is private
    """Add the command."""
    parser = commands.add_parser(
        "help",
        help="show the help of a command",
        description="Print the help of a command, or that of cpcmon as a whole.",
        epilog="example: cpcmon help estimate",
    )
    parser.add_argument("about", nargs="?", metavar="COMMAND", help="the command; without one, all are listed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    known = commands_of(options.parser)
    if options.about is not None and options.about not in known:
        raise UsageError(f"help: expected one of {', '.join(known)}, found {options.about!r}")
    print(known.get(options.about, options.parser).format_help(), end="")
    return 0
