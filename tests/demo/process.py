"""`cpcmon demo` in its own process group, as under a shell."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.waiting import wait_until

LIMIT = 90.0
"""Timeout in seconds, for a busy machine."""


class Demo:
    """One `cpcmon demo`."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self._out = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.out")
        with self._out.open("wb") as out:
            # Default signals, also if the tests run under nohup or in the background.
            self.process = subprocess.Popen(
                [
                    "env",
                    "--default-signal=HUP,INT",
                    sys.executable,
                    "-m",
                    "monitor",
                    "demo",
                    "--directory",
                    str(folder),
                    *words,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """The output so far."""
        return self._out.read_text(encoding="utf-8")

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches."""
        found: re.Match[str] = wait_until(
            lambda: re.search(pattern, self.output), lambda: f"expected {pattern!r} in:\n{self.output}"
        )
        return found

    @property
    def url(self) -> str:
        """The URL of the daemon."""
        return self.wait_for_output(r"Open (http://\S+/) in")[1]

    def metrics(self) -> str:
        """Return the metrics page."""
        with urlopen(f"{self.url}metrics", timeout=LIMIT) as answer:  # noqa: S310
            return str(answer.read().decode())

    def ask(self, path: str) -> dict[str, Any]:
        """Return a JSON document."""
        with urlopen(f"{self.url}{path}", timeout=LIMIT) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def segments(self) -> dict[str, Any]:
        """Return the segments in the daemon's status."""
        (model,) = self.ask("api/v1/status")["models"]
        return {one["segment"]: one for one in model["segments"]}

    @property
    def daemon(self) -> int:
        """The process id of the daemon."""
        lock = self.folder / "state-live" / "state.lock"
        return int(wait_until(lambda: lock.exists() and lock.read_text().split()[:1], lambda: "expected a daemon")[0])

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(LIMIT)


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[Demo]:
    """Run a demo and kill it at the end."""
    running = Demo(folder, *words)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def gone(process: int) -> bool:
    """Return whether a process has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
