"""The real `cpcmon run` process, its HTTP pages and its log."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from monitor.reference.reference import Reference
from tests.strategies import Integers, Singles, synthetic
from tests.waiting import wait_until

CLASSES = ("cat", "dog", "owl")
LIMIT = 60.0
"""A timeout for any step, long enough for a busy machine."""


def write_reference(folder: Path, name: str = "density", seed: int = 1) -> tuple[Reference, Singles, Integers]:
    """Write a reference; return it with its vectors and labels."""
    reference, vectors, labels = _calibrated(name, seed)
    reference.save(folder / f"{name}.ref")
    return reference, vectors, labels


@cache
def _calibrated(name: str, seed: int) -> tuple[Reference, Singles, Integers]:
    vectors, labels = synthetic(600, 3, seed=seed, sharpness=2.6)
    return Reference.calibrate(vectors, labels, model=name, version="2.1", classes=CLASSES), vectors, labels


def write_records(path: Path, vectors: Iterable[Sequence[float]] | Singles, **fields: object) -> None:
    """Append records to a file; the values of a list field are used in turn."""
    with path.open("a", encoding="utf-8") as file:
        for row, vector in enumerate(vectors):
            own = {
                name: value[row % len(value)] if isinstance(value, list) else value for name, value in fields.items()
            }
            file.write(json.dumps({"probs": [float(p) for p in vector], **own}) + "\n")


class Process:
    """One `cpcmon run`."""

    def __init__(
        self, config: Path, *words: str, environment: dict[str, str] | None = None, module: str = "monitor"
    ) -> None:
        command = [sys.executable, "-m", module, "run", "--config.file", str(config)]
        self._process = subprocess.Popen(
            [*command, "--web.listen-address", "127.0.0.1:0", *words],
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            text=True,
            errors="backslashreplace",
        )
        self.config = config
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All log lines."""
        return "\n".join(self.lines)

    def wait_for_line(self, text: str, count: int = 1) -> str:
        """Wait for the n-th log line that contains a text."""
        deadline = time.monotonic() + LIMIT
        with self._changed:
            while len(found := [line for line in self.lines if text in line]) < count:
                left = deadline - time.monotonic()
                assert left > 0, f"{text!r} was not logged:\n{self.log}"
                assert self._process.poll() is None or self._reader.is_alive(), f"ended:\n{self.log}"
                self._changed.wait(min(left, 0.5))
        return found[count - 1]

    @property
    def url(self) -> str:
        """The address of its web server."""
        found = re.search(r"https?://[0-9.]+:[0-9]+", self.wait_for_line("is ready on"))
        assert found is not None
        return found.group()

    def ask(self, path: str, method: str = "GET", accept: str = "*/*") -> tuple[int, str]:
        """Send a request; return status and body."""
        try:
            asked = Request(self.url + path, method=method, headers={"Accept": accept})  # noqa: S310 - our own
            with urlopen(asked, timeout=LIMIT) as answer:  # noqa: S310 - our own
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        """Return all samples by name and labels."""
        return series(self.ask("/metrics")[1])

    def wait_for(self, name: str, value: float) -> dict[str, float]:
        """Wait until a series has a value; return all samples of that scrape."""
        return self.wait_until(lambda page: page.get(name) == value, f"{name} to be {value}")

    def wait_until(
        self, holds: Callable[[dict[str, float]], bool], expected: str, seconds: float = LIMIT
    ) -> dict[str, float]:
        """Wait until the samples of a scrape fulfil a condition; return them."""

        def scraped() -> dict[str, float] | None:
            page = self.metrics()
            return page if holds(page) else None

        return wait_until(scraped, lambda: f"expected {expected}:\n{self.log}", seconds, 0.1)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the exit; return the code."""
        code = self._process.wait(LIMIT)
        self._reader.join(LIMIT)
        if self._process.stderr is not None:
            self._process.stderr.close()
        assert "<monitor." not in self.log, self.log
        return code

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self.end()


@contextmanager
def running(config: Path, *words: str, environment: dict[str, str] | None = None) -> Iterator[Process]:
    """Run a process; kill it at the end."""
    process = Process(config, *words, environment=environment)
    try:
        yield process
    finally:
        process.kill()


def series(page: str) -> dict[str, float]:
    """Return the samples of a metrics page by name and labels, as printed."""
    found = {}
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def one(page: dict[str, float], name: str, **labels: str) -> float | None:
    """Return the value of the first series with these labels, in any order."""
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    for key, value in page.items():
        if key.partition("{")[0] == name and wanted <= set(re.findall(r'\w+="[^"]*"', key)):
            return value
    return None


def half_open(address: str, count: int) -> Sequence[socket.socket]:
    """Open connections that send half a request and then nothing."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    found = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), timeout=LIMIT)
        connection.sendall(b"GET /metr")
        found.append(connection)
    return found
