"""The commands, in one file each or a few together. `main` runs one and turns exceptions into exit codes.

Exit codes are public: 0 done, 1 failed while running, 2 bad input, reference or usage (nothing was written), 3 state in
use by another process.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module

from monitor.cli.parser import Parser, commands_of
from monitor.errors import CpcmonError

_COMMANDS = {
    "calibrate": ("calibrate", "make a reference from a labelled set"),
    "estimate": ("estimate_command", "estimate the accuracy from unlabelled outputs"),
    "evaluate": ("evaluate", "measure the error of each estimator on labelled data"),
    "plan": ("plan", "say how soon a drop is noticed, and write the alert for it"),
    "run": ("run", "run the daemon: ingest, evaluate, serve /metrics, alert"),
    "check-config": ("check_config", "check a configuration and show its memory use"),
    "rules": ("alerting:register_rules", "write the Prometheus rule file for a configuration"),
    "notify": ("alerting:register_notify", "send a test message through the webhook"),
    "watch": ("watch", "follow a directory and print estimates as records arrive"),
    "state": ("state", "show the content of a state directory"),
    "baseline": ("baseline", "list, reset and confirm what segments are compared with; hold change alerts"),
    "audit-list": ("labels:register_audit_list", "list the ids of audited records that wait for their labels"),
    "audit-check": ("labels:register_audit_check", "say which of some ids are audited"),
    "forget": ("labels:register_forget", "delete what is stored of some ids"),
    "demo": ("demo", "run a live demo: a model at three hospitals, and a scanner that is replaced"),
    "completion": ("usage:register_completion", "print a shell completion script"),
    "help": ("usage:register_help", "show the help of a command"),
}
"""Command: its module, imported on use, with the function that adds its arguments if it is not `register`; and its help."""

_EPILOG = """\
Start with `cpcmon demo`. `cpcmon COMMAND --help` shows the options of a command, with examples.

exit codes:
  0    done
  1    failed while running: a disk, a permission, an address in use
  2    bad usage, input, reference or configuration; nothing was written
  3    the state directory is in use by another process
  130  interrupted by Ctrl-C

from a labelled set to an estimate:
  cpcmon calibrate --input validation.csv --class-columns 'prob_*' --model density --output density.ref
  cpcmon estimate --reference density.ref --input outputs.jsonl
"""


class _Version(argparse._VersionAction):  # noqa: SLF001 - scripts for completion know it
    """Prints the version and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        print(f"cpcmon {version('cpcmon')}")
        parser.exit()


def make_parser(used: Iterable[str] = tuple(_COMMANDS)) -> Parser:
    """Return the parser with all commands, and the options of the commands in `used`."""
    parser = Parser(
        prog="cpcmon",
        description="Estimate the accuracy of a deployed classifier without labels, with an interval, from its output"
        " probabilities and a reference made once from a labelled set.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=_Version, help="show the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    for name, (module, help_) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_)
        if name in used:
            place, _, function = module.partition(":")
            getattr(import_module(f"monitor.cli.{place}"), function or "register")(command)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    # No global option takes a value, so the first word without a dash is the command.
    parser = make_parser([word for word in words if not word.startswith("-")][:1])
    chosen, unknown = parser.parse_known_args(words)
    if unknown:
        asked = commands_of(parser).get(chosen.command, parser)
        (asked if isinstance(asked, Parser) else parser).reject_unknown(unknown)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        print("\ncpcmon: expected a command, found none; try cpcmon demo", file=sys.stderr)
        return 2
    try:
        with _interruptible():
            code = int(chosen.run(chosen))
            if sys.stdout is not None:  # cpcmon … >&-
                sys.stdout.flush()
    except CpcmonError as error:
        print(f"cpcmon: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # As in `cpcmon … | head`. Redirect, so that Python does not fail to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        print(f"cpcmon: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cpcmon: interrupted", file=sys.stderr)
        return 130
    return code


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT while a command runs, so that it can clean up."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
