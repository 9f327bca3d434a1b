"""Real servers, run for the length of a block."""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_SECONDS = 60.0


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(ready: str, log: Path, *command: object) -> Iterator[None]:
    """Run a server for the length of a block, from when it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output, cwd=log.parent)
    try:
        until = time.monotonic() + LIMIT_SECONDS
        while not answers(ready):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def answers(url: str) -> bool:
    """Return whether a URL answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310  an address of our own
            return bool(answer.status == 200)
    except OSError:
        return False
