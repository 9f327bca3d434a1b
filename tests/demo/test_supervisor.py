"""What ends the daemon when nobody holds it any more."""

import subprocess
import sys

from tests.demo.process import LIMIT

_DEAF = """
import signal, time
from monitor.demo import supervisor
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
supervisor.PATIENCE_SECONDS = 0.2
supervisor.hold()
deadline = time.monotonic() + 60.0
while time.monotonic() < deadline:
    time.sleep(0.1)
"""


def test_a_daemon_that_does_not_stop_when_told_is_ended() -> None:
    """The demo would have killed it, but the demo was killed itself."""
    ran = subprocess.run(
        [sys.executable, "-c", _DEAF], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False
    )
    assert (ran.stdout, ran.returncode) == (b"told\n", 1), ran.stderr
