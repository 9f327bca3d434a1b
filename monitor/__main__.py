"""`cpcmon` and `python -m monitor`. Imports next to nothing, so that Ctrl-C ends a start without a traceback."""

import signal
import sys


def main() -> int:
    """Run the command line. SIGINT kills the process silently, but raises KeyboardInterrupt while a command works."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from monitor.cli import main as run  # noqa: PLC0415 - after SIGINT was seen to

    return run()


if __name__ == "__main__":
    sys.exit(main())
