"""Runs cpcmon as long as somebody holds the other end of its standard input: `python -m monitor.demo.leash run …`.

The demo may be killed in a way that it cannot notice; then its end of the pipe closes, and the daemon stops in order.
"""

import os
import runpy
import signal
import sys
import threading


def _stop_when_let_go() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_when_let_go, name="leash", daemon=True).start()
    sys.argv[0] = "cpcmon"
    runpy.run_module("monitor", run_name="__main__")
