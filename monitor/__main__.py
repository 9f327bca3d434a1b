"""`cpcmon` and `python -m monitor`. Imports little, so that Ctrl-C at the start causes no traceback."""

import signal
import sys


def main() -> int:
    """Run the command line. SIGINT ends the process silently, except while a command runs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from monitor.cli import main as run  # noqa: PLC0415 - after the signal handler

    return run()


if __name__ == "__main__":
    sys.exit(main())
