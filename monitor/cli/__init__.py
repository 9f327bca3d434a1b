"""The commands. One file each; `main` finds the one that is asked for and turns our errors into exit codes.

Exit codes are public: 0 done, 1 failed while running, 2 bad input, reference or usage (nothing was written), 3 state in
use by another process.
"""

import argparse
import os
import sys
from importlib.metadata import version

from monitor.cli import calibrate, check_config, demo, estimate, evaluate, rules, run, state, watch
from monitor.errors import CpcmonError

_COMMANDS = (calibrate, estimate, evaluate, run, check_config, rules, watch, state, demo)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="cpcmon",
        description="How accurate is a deployed classifier now, without labels?",
        epilog="Start with `cpcmon demo`, or with `cpcmon calibrate --help`.",
    )
    parser.add_argument("--version", action="version", version=f"cpcmon {version('cpcmon')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.register(commands)
    chosen = parser.parse_args(arguments)
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
        print(f"cpcmon: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code
