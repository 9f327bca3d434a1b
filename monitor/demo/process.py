"""The daemon of the demo: a process of its own, which ends when the demo does."""

import re
import subprocess
import sys
import time
from pathlib import Path

from monitor.errors import ServerError

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_LAST_LINES = 8
_READY = re.compile(r"is ready on (http://[^\s\"]+)")


class DaemonProcess:
    """One daemon. Used by one thread."""

    def __init__(self, config: Path, log: Path, address: str) -> None:
        self._log = log
        # -P: a folder `monitor` where the demo is run is not taken for ours.
        command = [sys.executable, "-P", "-m", "monitor.demo.leash", "run"]
        with log.open("wb") as out:
            # In a session of its own: Ctrl-C is for the demo, which then stops the daemon, once.
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [*command, "--config.file", str(config), "--web.listen-address", address],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def url(self) -> str:
        """Wait until the daemon is ready, and return where its page is; raises ServerError when it is not."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = _READY.search(self._log.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                return found[1]
            self.check()
            time.sleep(0.05)
        raise self._ended(f"it not ready after {_START_SECONDS:.0f} s")

    def check(self) -> None:
        """Raise ServerError if the daemon has ended."""
        code = self._process.poll()
        if code is not None:
            raise self._ended(f"it ended with {code}")

    def stop(self) -> None:
        """Let go of it, wait until it has written down what it knows, and make sure that it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self, found: str) -> ServerError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        told = "".join(f"\n  {line}" for line in lines) or " nothing"
        return ServerError(f"the daemon: expected it at work, found {found}; the end of {self._log} says:{told}")
