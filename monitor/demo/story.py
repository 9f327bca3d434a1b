"""The simulation behind the demo: three hospitals with two scanners each, one of which is replaced.

The hospitals differ: the model is ten points less accurate at Oakmoor than at Ferndale, and nothing is wrong there. Both are in
the labelled set, Northlake is not. There a scanner is replaced. Its images have less contrast, until it is calibrated three
minutes later. The true grades of some exams come later: of a random sample, and of exams that the model was unsure about. All
times are in seconds of the story.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.core.scores import Booleans
from monitor.demo.example_data import CLASSES, PREVALENCE, Floats, Integers, trained


@dataclass(frozen=True, slots=True)
class Scanner:
    """A scanner with its patients."""

    hospital: str
    room: str
    prevalence: Floats
    contrast: float = 1.0
    labelled: bool = True
    """Whether the labelled set has exams of it."""

    @property
    def segments(self) -> tuple[str, str, str]:
        """The names of its segments."""
        return "all", f"hospital={self.hospital}", f"hospital={self.hospital},scanner={self.room}"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the story."""

    at: float
    sentence: str


_OLDER: Floats = np.array([0.12, 0.42, 0.37, 0.09])
_YOUNGER: Floats = np.array([0.09, 0.38, 0.42, 0.11])

SCANNERS = (
    Scanner("Ferndale", "F1", PREVALENCE, contrast=1.15),
    Scanner("Ferndale", "F2", PREVALENCE, contrast=1.13),
    Scanner("Northlake", "N1", _OLDER, contrast=1.01, labelled=False),
    Scanner("Northlake", "N2", _OLDER, labelled=False),
    Scanner("Oakmoor", "O1", _YOUNGER, contrast=0.79),
    Scanner("Oakmoor", "O2", _YOUNGER, contrast=0.8),
)
REPLACED = SCANNERS[3]
SHIFTED = REPLACED.segments[-1]
"""The segment of the replaced scanner."""
LOWEST = SCANNERS[-1].segments[1]
"""The segment of the hospital where the model is least accurate, in health."""
SEGMENTS = tuple(dict.fromkeys(name for scanner in SCANNERS for name in scanner.segments))

REPLACED_AT = 90.0
CALIBRATED_AT = 270.0
LENGTH = 450.0
"""Then the story repeats."""
LOW_CONTRAST = 0.5
"""The contrast of the new scanner until it is calibrated."""

EVENTS = (
    Event(
        0.0,
        "Six scanners at three hospitals, all healthy. At Oakmoor the model is ten points less accurate than at Ferndale, as"
        " it was on their labelled exams. Northlake has none, and is compared with its own first exams.",
    ),
    Event(
        REPLACED_AT,
        f"Scanner {REPLACED.room} at {REPLACED.hospital} is replaced. The images of the new scanner have less"
        " contrast than those that the model was trained on.",
    ),
    Event(CALIBRATED_AT, f"The new scanner {REPLACED.room} is calibrated, and its images are normal again."),
)


def contrast(scanner: Scanner, seconds: float) -> float:
    """Return the contrast of a scanner; 1.0 is that of the training data."""
    into = seconds % LENGTH
    return LOW_CONTRAST if scanner is REPLACED and REPLACED_AT <= into < CALIBRATED_AT else scanner.contrast


def events(after: float, until: float) -> list[Event]:
    """Return the events in the interval (after, until], in order."""
    first, last = int(max(after, 0.0) // LENGTH), int(until // LENGTH)
    found = (Event(round_ * LENGTH + one.at, one.sentence) for round_ in range(first, last + 1) for one in EVENTS)
    return [one for one in found if after < one.at <= until]


MODEL = "density"
VERSION = "2.1"


@dataclass(frozen=True, slots=True)
class Examined:
    """Exams at one scanner."""

    scanner: Scanner
    outputs: Floats
    grades: Integers
    """The true ones. Never part of a record."""

    @property
    def right(self) -> tuple[bool, ...]:
        """Whether each predicted grade is right."""
        return tuple((self.outputs.argmax(axis=1) == self.grades).tolist())


def labelled_exams(each: int = 1000) -> list[dict[str, Any]]:
    """Return the labelled set, with so many exams of each of its scanners."""
    known, model = trained()
    patients, found = known.others(np.random.default_rng(11)), []
    for scanner in (one for one in SCANNERS if one.labelled):
        measured, grades = patients.draw(each, scanner.prevalence, scanner.contrast)
        for vector, grade in zip(model.probabilities(measured).tolist(), grades.tolist(), strict=True):
            place = {"hospital": scanner.hospital, "scanner": scanner.room}
            found.append({**place, "probs": vector, "label": CLASSES[grade]})
    return found


class Exams:
    """Simulates exams at all scanners."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        known, self._model = trained()
        self._patients = known.others(self._random)

    def next(self, count: int, seconds: float) -> list[Examined]:
        """Return `count` exams, spread over the scanners at random."""
        shares = self._random.multinomial(count, [1.0 / len(SCANNERS)] * len(SCANNERS))
        return [
            self._at(scanner, int(share), seconds) for scanner, share in zip(SCANNERS, shares, strict=True) if share
        ]

    def _at(self, scanner: Scanner, count: int, seconds: float) -> Examined:
        measured, grades = self._patients.draw(count, scanner.prevalence, contrast(scanner, seconds))
        return Examined(scanner, self._model.probabilities(measured), grades)


def records(examined: list[Examined], first: int, run: str, now: float) -> list[dict[str, Any]]:
    """Return the records to send, without labels."""
    rows = [(one.scanner, vector) for one in examined for vector in one.outputs.tolist()]
    return [
        {
            "model": MODEL,
            "version": VERSION,
            "id": _id(run, first + number),
            "time": round(now, 3),
            "hospital": scanner.hospital,
            "scanner": scanner.room,
            "probs": vector,
        }
        for number, (scanner, vector) in enumerate(rows)
    ]


LABELS_AFTER = 10.0
"""From an exam to its label. In a hospital it is weeks; here the story should not be long."""
LABELS = (
    f"Labels come {LABELS_AFTER:.0f} seconds after their exams: of a random tenth of all, the audit, and of those that the model"
    " was unsure about."
)
UNSURE = 0.6
"""Exams with a lower confidence are read a second time, and so get a label too."""


def labels(
    examined: list[Examined], first: int, run: str, chosen: Callable[[list[str]], Booleans]
) -> list[dict[str, Any]]:
    """Return the labels that will come: of the exams whose ids are chosen, and of those that the model was unsure about."""
    grades = np.concatenate([one.grades for one in examined]).tolist()
    unsure = np.concatenate([one.outputs.max(axis=1) < UNSURE for one in examined])
    ids = [_id(run, first + number) for number in range(len(grades))]
    rows = zip(ids, grades, (chosen(ids) | unsure).tolist(), strict=True)
    return [{"model": MODEL, "id": id_, "label": CLASSES[grade]} for id_, grade, wanted in rows if wanted]


def _id(run: str, number: int) -> str:
    return f"{run}-{number}"


class Truth:
    """The true accuracy of each segment over its window. The daemon knows it from late labels, and only of some exams."""

    def __init__(self, window: int, minimum: int) -> None:
        self._window = window
        self._minimum = minimum
        self._right: dict[str, deque[bool]] = {}

    def note(self, examined: list[Examined]) -> None:
        """Add exams to the windows."""
        for one in examined:
            for segment in one.scanner.segments:
                self._right.setdefault(segment, deque(maxlen=self._window)).extend(one.right)

    def now(self, segment: str) -> float | None:
        """Return the true accuracy of a segment; None with too few records."""
        found = self._right.get(segment, ())
        return sum(found) / len(found) if len(found) >= self._minimum else None
