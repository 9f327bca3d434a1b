"""What happens in the demo, and when: three hospitals, two scanners each, and one of these is replaced.

The new scanner's images have less contrast, so the patterns by which the classifier tells the grades are fainter. It
is calibrated three minutes later. Everything here is in the story's own seconds.
"""

from dataclasses import dataclass

import numpy as np

from monitor.example_data import PREVALENCE, Floats


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
