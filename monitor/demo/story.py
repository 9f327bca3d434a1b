"""The story of the demo: three hospitals, two scanners each, one of them replaced; exams, and which answers were right.

The new scanner's images have less contrast, so the patterns by which the classifier tells the grades are fainter. It
is calibrated three minutes later. Everything here is in the story's own seconds.
"""

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monitor.core.report import Realised
from monitor.demo.example_data import PREVALENCE, Floats, trained


@dataclass(frozen=True, slots=True)
class Scanner:
    """A scanner, by the room it stands in, and who comes to it."""

    hospital: str
    room: str
    prevalence: Floats
    contrast: float = 1.0

    @property
    def segments(self) -> tuple[str, str, str]:
        """The windows that its records count in, as the daemon calls them."""
        return "all", f"hospital={self.hospital}", f"hospital={self.hospital},scanner={self.room}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell."""

    at: float
    sentence: str


_OLDER: Floats = np.array([0.12, 0.42, 0.37, 0.09])
_YOUNGER: Floats = np.array([0.09, 0.38, 0.42, 0.11])

SCANNERS = (
    Scanner("Ferndale", "F1", PREVALENCE),
    Scanner("Ferndale", "F2", PREVALENCE, contrast=0.99),
    Scanner("Northlake", "N1", _OLDER, contrast=1.01),
    Scanner("Northlake", "N2", _OLDER),
    Scanner("Oakmoor", "O1", _YOUNGER, contrast=0.99),
    Scanner("Oakmoor", "O2", _YOUNGER),
)
REPLACED = SCANNERS[3]
SHIFTED = REPLACED.segments[-1]
"""The window in which the story happens."""
SEGMENTS = tuple(dict.fromkeys(name for scanner in SCANNERS for name in scanner.segments))

REPLACED_AT = 60.0
MENDED_AT = 240.0
LENGTH = 420.0
"""After which it begins again."""
FAINT = 0.5
"""The contrast of the new scanner until it is calibrated."""

EVENTS = (
    Event(0.0, "All is well: six scanners at three hospitals, and the model does what it did in its validation."),
    Event(
        REPLACED_AT,
        f"Scanner {REPLACED.room} at {REPLACED.hospital} is replaced. The new one's images have less contrast,"
        " and nobody has told the model.",
    ),
    Event(MENDED_AT, f"The new scanner {REPLACED.room} is calibrated: its images look as they should again."),
)


def contrast(scanner: Scanner, seconds: float) -> float:
    """Return how clearly a scanner shows the patterns; 1.0 is what the model was made with."""
    into = seconds % LENGTH
    return FAINT if scanner is REPLACED and REPLACED_AT <= into < MENDED_AT else scanner.contrast


def events(after: float, until: float) -> list[Event]:
    """Return what happened after one moment and up to another, in order; the story may have begun again in between."""
    first, last = int(max(after, 0.0) // LENGTH), int(until // LENGTH)
    found = (Event(round_ * LENGTH + one.at, one.sentence) for round_ in range(first, last + 1) for one in EVENTS)
    return [one for one in found if after < one.at <= until]


MODEL = "density"
VERSION = "2.1"


@dataclass(frozen=True, slots=True)
class Examined:
    """What one scanner did in a moment."""

    scanner: Scanner
    said: Floats
    right: tuple[bool, ...]
    """Whether the grade that the classifier holds most likely is the patient's. Never part of a record."""


class Exams:
    """Examinations at all scanners. The same seed brings the same patients."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        known, self._model = trained()
        self._patients = known.others(self._random)

    def next(self, count: int, seconds: float) -> list[Examined]:
        """Return so many examinations, made at a moment of the story, spread over the scanners by chance."""
        shares = self._random.multinomial(count, [1.0 / len(SCANNERS)] * len(SCANNERS))
        return [
            self._at(scanner, int(share), seconds) for scanner, share in zip(SCANNERS, shares, strict=True) if share
        ]

    def _at(self, scanner: Scanner, count: int, seconds: float) -> Examined:
        measured, grades = self._patients.draw(count, scanner.prevalence, contrast(scanner, seconds))
        said = self._model.probabilities(measured)
        return Examined(scanner, said, tuple((said.argmax(axis=1) == grades).tolist()))


def records(examined: list[Examined], first: int, run: str, now: float) -> list[dict[str, Any]]:
    """Return what is sent of them: what the model said, where and when, and nothing of the truth."""
    rows = [(one.scanner, vector) for one in examined for vector in one.said.tolist()]
    return [
        {
            "model": MODEL,
            "version": VERSION,
            "id": f"{run}-{first + number}",
            "time": round(now, 3),
            "hospital": scanner.hospital,
            "scanner": scanner.room,
            "probs": vector,
        }
        for number, (scanner, vector) in enumerate(rows)
    ]


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
