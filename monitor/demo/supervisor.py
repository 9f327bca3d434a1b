"""Runs cpcmon until its standard input is closed: `python -m monitor.demo.supervisor run …`.

So the daemon stops when the demo is killed.
"""

import os
import runpy
import signal
import sys
import threading
import time

PATIENCE_SECONDS = 30.0
"""How long the daemon may take to stop; longer than the demo waits before it kills the daemon."""


def stop_at_end_of_input() -> None:
    """Stop this process when its standard input is closed."""
    threading.Thread(target=_wait_and_stop, name="supervisor", daemon=True).start()


def _wait_and_stop() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    stop_at_end_of_input()
    sys.argv[0] = "cpcmon"
    runpy.run_module("monitor", run_name="__main__")
