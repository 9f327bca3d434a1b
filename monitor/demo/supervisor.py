"""Runs cpcmon as long as somebody holds the other end of its standard input: `python -m monitor.demo.supervisor run …`.

The demo may be killed in a way that it cannot notice; then its end of the pipe closes, and the daemon stops in order.
"""

import os
import runpy
import signal
import sys
import threading
import time

PATIENCE_SECONDS = 30.0
"""How long the daemon may take to stop: longer than the demo waits, which then kills it, unless it was killed itself."""


def hold() -> None:
    """End this process, in order if it can, once nobody holds it any more."""
    threading.Thread(target=_stop_when_let_go, name="supervisor", daemon=True).start()


def _stop_when_let_go() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    hold()
    sys.argv[0] = "cpcmon"
    runpy.run_module("monitor", run_name="__main__")
