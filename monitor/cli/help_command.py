"""`cpcmon help COMMAND`: the same as `cpcmon COMMAND --help`."""

import argparse

from monitor.cli import make_parser
from monitor.cli.parser import commands_of
from monitor.errors import Problem, UsageError


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = "Print the help of a command, or of cpcmon."
    parser.epilog = "example: cpcmon help estimate"
    parser.add_argument("about", nargs="?", metavar="COMMAND", help="the command (default: list all)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the help."""
    parser = make_parser([options.about])
    known = commands_of(parser)
    if options.about is not None and options.about not in known:
        raise UsageError(Problem("help", f"one of {', '.join(known)}", repr(options.about)))
    print(known.get(options.about, parser).format_help(), end="")
    return 0
