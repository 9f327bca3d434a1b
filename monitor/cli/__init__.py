"""The commands. One file each; `main` finds the one that is asked for and turns our errors into exit codes.

Exit codes are public: 0 done, 1 failed while running, 2 bad input, reference or usage (nothing was written), 3 state in
use by another process.
"""

import os
import sys
from importlib.metadata import version

from monitor.cli import (
    calibrate,
    check_config,
    completion,
    demo,
    estimate,
    evaluate,
    help_command,
    rules,
    run,
    state,
    watch,
)
from monitor.cli.parser import Parser, commands_of
from monitor.errors import CpcmonError

_COMMANDS = (calibrate, estimate, evaluate, run, check_config, rules, watch, state, demo, completion, help_command)

_EPILOG = """\
Start with `cpcmon demo`; `cpcmon COMMAND --help` shows every option of a command, with an example.

exit codes:
  0    done
  1    failed while running: a disk, a permission, an address in use
  2    bad usage, input, reference or configuration; nothing was written
  3    the state folder is in use by another process
  130  interrupted by Ctrl-C

from a labelled set to an estimate:
  cpcmon calibrate --input validation.csv --class-columns 'prob_*' --model density --output density.ref
  cpcmon estimate --reference density.ref --input outputs.jsonl
"""


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="cpcmon",
        description="How accurate is a deployed classifier now, without labels? From the probabilities that it puts out,"
        " and a reference made once from a labelled set, cpcmon estimates its accuracy with an interval.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--version", action="version", version=f"cpcmon {version('cpcmon')}", help="say which one it is"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    for command in _COMMANDS:
        command.register(commands)
    parser.set_defaults(parser=parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = make_parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        asked = commands_of(parser).get(chosen.command, parser)
        (asked if isinstance(asked, Parser) else parser).refuse_unknown(unknown)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        print("\ncpcmon: expected a command, found none; to see it at work: cpcmon demo", file=sys.stderr)
        return 2
    try:
        code = int(chosen.run(chosen))
        if sys.stdout is not None:  # closed by the caller: cpcmon … >&-
            sys.stdout.flush()
    except CpcmonError as error:
        print(f"cpcmon: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has seen enough (`cpcmon … | head`); leave nothing for Python to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        told = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        print(f"cpcmon: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cpcmon: interrupted", file=sys.stderr)
        return 130
    return code
