"""Examinations: patients come to scanners, and the classifier says what it sees. What is true is told apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.demo.story import SCANNERS, Scanner, contrast
from monitor.example_data import Floats, trained

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
