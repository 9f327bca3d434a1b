"""What the classifier had right, kept aside: a feed of real life has no such thing, or has it months later."""

import json
from collections import deque
from pathlib import Path

from monitor.core.realised import Realised
from monitor.demo.exams import Examined

KEPT_SECONDS = 1800.0
"""How far back the file goes."""


class Truth:
    """For each segment, which of the records in its window were right, and what that was over the last half hour."""

    def __init__(self, window: int, minimum: int) -> None:
        self._window = window
        self._minimum = minimum
        self._right: dict[str, deque[bool]] = {}
        self._told: deque[Realised] = deque()

    def note(self, examined: list[Examined]) -> None:
        """Take in what was just examined."""
        for one in examined:
            for segment in one.scanner.segments:
                self._right.setdefault(segment, deque(maxlen=self._window)).extend(one.right)

    def now(self, segment: str, at: float) -> Realised | None:
        """Return how a window did; None while it has too few records to be judged."""
        found = self._right.get(segment, ())
        if len(found) < self._minimum:
            return None
        return Realised(at, segment, len(found), sum(found))

    def write(self, path: Path, at: float) -> None:
        """Add how every window does to the file, as a whole, and leave out what is older than half an hour."""
        self._told.extend(one for segment in self._right if (one := self.now(segment, at)) is not None)
        # What is dated later than now was written before the clock was set back.
        while self._told and not at - KEPT_SECONDS <= self._told[0].at <= at:
            self._told.popleft()
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            for one in self._told:
                line = {"at": round(one.at, 3), "segment": one.segment, "records": one.records, "right": one.right}
                file.write(json.dumps(line) + "\n")
        temporary.replace(path)
