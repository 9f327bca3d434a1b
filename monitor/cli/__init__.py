"""The commands. One file each; `main` finds the one that is asked for and turns our errors into exit codes.

Exit codes are public: 0 done, 1 failed while running, 2 bad input, reference or usage (nothing was written), 3 state in
use by another process.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version

from monitor.cli.parser import Parser, commands_of
from monitor.errors import CpcmonError

_COMMANDS = {
    "calibrate": ("calibrate", "make a reference from a labelled set"),
    "estimate": ("estimate_command", "estimate the accuracy in unlabelled outputs"),
    "evaluate": ("evaluate", "how wrong is each estimator, where labels are known"),
    "run": ("run", "the daemon: watch, evaluate, serve /metrics, judge alerts"),
    "check-config": ("check_config", "check a configuration, and say what it will cost"),
    "rules": ("rules", "write the Prometheus rule file for a configuration"),
    "watch": ("watch", "follow a directory of outputs and estimate as they come"),
    "state": ("state", "show what a state folder holds"),
    "demo": ("demo", "see it at work: a model at three hospitals, and a scanner that is replaced"),
    "completion": ("completion", "print a script that completes commands and options in a shell"),
    "help": ("help_command", "show the help of a command"),
}
"""Each command with its module, which is imported only when the command is used, and what the help says of it."""

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


def make_parser(used: Iterable[str] = tuple(_COMMANDS)) -> Parser:
    """Return the parser of the command line; it knows all commands, but only the options of those that are used."""
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
    for name, (module, help_) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_)
        if name in used:
            import_module(f"monitor.cli.{module}").register(command)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    # The first word that is no option: cpcmon itself has no option that takes a value.
    parser = make_parser([word for word in words if not word.startswith("-")][:1])
    chosen, unknown = parser.parse_known_args(words)
    if unknown:
        asked = commands_of(parser).get(chosen.command, parser)
        (asked if isinstance(asked, Parser) else parser).refuse_unknown(unknown)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        print("\ncpcmon: expected a command, found none; to see it at work: cpcmon demo", file=sys.stderr)
        return 2
    try:
        with _interruptible():
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


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, so that a command can clean up; before and after, SIGINT just ends the process."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
