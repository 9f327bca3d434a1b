"""The real command, in a process group of its own as under a shell."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

LIMIT = 90.0
"""How long anything may take on a machine that is busy with other tests."""


class Demo:
    """One `cpcmon demo`."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self._out = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.out")
        with self._out.open("wb") as out:
            # As from a terminal, also where these tests run under nohup or in the background.
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
    def said(self) -> str:
        """What it printed so far."""
        return self._out.read_text(encoding="utf-8")

    def hear(self, pattern: str) -> re.Match[str]:
        """Wait until it says something."""
        found: re.Match[str] = waited(lambda: re.search(pattern, self.said), lambda: f"{pattern!r} in:\n{self.said}")
        return found

    @property
    def url(self) -> str:
        """Where its page is."""
        return self.hear(r"Open (http://\S+/) in")[1]

    def metrics(self) -> str:
        """Return the metrics page."""
        with urlopen(f"{self.url}metrics", timeout=LIMIT) as answer:  # noqa: S310 - our own
            return str(answer.read().decode())

    def ask(self, path: str) -> dict[str, Any]:
        """Return the JSON of a page."""
        with urlopen(f"{self.url}{path}", timeout=LIMIT) as answer:  # noqa: S310 - our own
            found: dict[str, Any] = json.load(answer)
        return found

    def segments(self) -> dict[str, Any]:
        """Return the windows that the daemon reports."""
        (model,) = self.ask("api/v1/status")["models"]
        return {one["segment"]: one for one in model["segments"]}

    @property
    def daemon(self) -> int:
        """The process that watches, as its state knows it."""
        lock = self.folder / "state-live" / "state.lock"
        return int(waited(lambda: lock.exists() and lock.read_text().split()[:1], lambda: "a daemon")[0])

    def interrupt(self) -> int:
        """Press Ctrl-C, and return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(LIMIT)


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[Demo]:
    """Run one, and make sure that it is gone."""
    running = Demo(folder, *words)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def waited(look: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Wait until there is something."""
    deadline = time.monotonic() + LIMIT
    while not (found := look()):
        assert time.monotonic() < deadline, f"expected {what()}"
        time.sleep(0.1)
    return found


def gone(process: int) -> bool:
    """Tell whether a process has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
