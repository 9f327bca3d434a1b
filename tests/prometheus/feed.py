"""A steady feed of example outputs into a directory, by site."""

import json
import threading
from pathlib import Path
from typing import Any

from monitor.demo.example_data import write_example

_PERIOD_SECONDS = 0.25
_AT_ONCE = 25
_SITES = {"A": 0, "B": 1000}
"""First output of each site: no record belongs to both."""


class Feed:
    """A gateway of two sites; a site may become inaccurate or silent."""

    def __init__(self, folder: Path) -> None:
        self.files = write_example(folder / "example")
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.inaccurate: set[str] = set()
        self.silent: set[str] = set()
        self._good, self._poor = (_outputs(self.files[name]) for name in ("site_a", "site_b"))
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Fill the windows, and then continue."""
        self._write(600)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD_SECONDS):
            self._write(_AT_ONCE)

    def _write(self, count: int) -> None:
        with (self.inbox / "results.jsonl").open("a", encoding="utf-8") as file:
            for site, offset in _SITES.items():
                outputs = self._poor if site in self.inaccurate else self._good
                first = self._written + offset
                for row in range(first, first + (0 if site in self.silent else count)):
                    file.write(json.dumps({"site": site, "probs": outputs[row % len(outputs)]}) + "\n")
        self._written += count


def _outputs(path: Path) -> list[Any]:
    return [json.loads(line)["probs"] for line in path.read_text().splitlines()]
