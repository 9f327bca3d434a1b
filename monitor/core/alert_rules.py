"""Rules of alerts: what is looked at, what it is compared with, for which segments, and for how long."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from monitor.core.estimators.consensus import CONSENSUS

_WHOLE = "all"
_DAYS = 86_400.0
_LONGEST_SECONDS = 366 * _DAYS
_MOST_WINDOWS = 10.0
CHANCE_MARGIN = 1.5
"""Disagreement fires over this many times what chance alone gives.

Chance stays below its bound in 95% of windows, so the bound itself is crossed every few days in health, and more often by
a model whose reference is a little off. docs/alerts.md has the rates that were measured.
"""


class Kind(StrEnum):
    """What a rule looks at."""

    ACCURACY = "accuracy"
    DISAGREEMENT = "disagreement"
    SILENT = "silent"
    DEGRADED_INPUT = "degraded_input"


class Severity(StrEnum):
    """How urgent an alert is: the usual three words of Prometheus rules."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class On(StrEnum):
    """Which end of an estimate is compared with the threshold."""

    VALUE = "value"
    LOWER = "lower"
    UPPER = "upper"


_MAY_HAVE = {
    Kind.ACCURACY: ("below", "drop", "above"),
    Kind.DISAGREEMENT: ("above",),
    Kind.SILENT: (),
    Kind.DEGRADED_INPUT: (),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One configured alert of a model. Exactly one of `below`, `drop` and `above` for accuracy."""

    name: str
    kind: Kind = Kind.ACCURACY
    severity: Severity = Severity.WARNING
    estimator: str = CONSENSUS
    below: float | None = None
    """Fires under this accuracy."""
    drop: float | None = None
    """Fires this far under the accuracy of the reference: 0.05 is five points."""
    above: float | None = None
    """Fires over this accuracy; for disagreement, over this disagreement (None: over `CHANCE_MARGIN` times what chance alone gives)."""
    on: On = On.UPPER
    for_seconds: float = 1800.0
    hysteresis: float = 0.01
    """How far beyond the threshold it must be to recover."""
    new_records: float = 0.2
    """How much must have come since it became pending, or began to recover, as a share of the window; 1.5 is one and a half."""
    after_seconds: float = 0.0
    """For silence: how long without a record."""
    segments: tuple[str, ...] = ("*",)
    """To which segments it applies: names such as `all` and `site=A`, in which * stands for anything but a comma; a * alone for every segment. Degraded input is of the model: it applies to `all` whatever stands here."""

    def __post_init__(self) -> None:
        """Refuse a rule that could never fire, never end, or not be told what to compare."""
        if not self.name or not self.estimator:
            raise ValueError(f"alert: expected a name and an estimator, found {self.name!r} and {self.estimator!r}")
        self._check_thresholds()
        self._check("hysteresis", "a ratio from 0 up to, not including, 1", 0.0 <= self.hysteresis < 1.0)
        self._check("new_records", f"a ratio from 0 to {_MOST_WINDOWS:g}", 0.0 <= self.new_records <= _MOST_WINDOWS)
        self._check("for_seconds", "0 to 366 days", 0.0 <= self.for_seconds <= _LONGEST_SECONDS)
        if self.kind is Kind.SILENT:
            self._check("after_seconds", "more than 0, up to 366 days", 0.0 < self.after_seconds <= _LONGEST_SECONDS)
        else:
            self._check("after_seconds", f"nothing for {self.kind}", self.after_seconds == 0.0)
        self._check("segments", "names of segments", bool(self.segments) and all(self.segments))

    def _check_thresholds(self) -> None:
        given = [key for key in ("below", "drop", "above") if getattr(self, key) is not None]
        found = " and ".join(given) or "none"
        if self.kind is Kind.ACCURACY and len(given) != 1:
            raise ValueError(f"alert {self.name}: expected exactly one of below, drop and above, found {found}")
        if not set(given) <= set(_MAY_HAVE[self.kind]):
            may_have = " or ".join(_MAY_HAVE[self.kind]) or "no threshold"
            raise ValueError(f"alert {self.name}: expected {may_have} for {self.kind}, found {found}")
        # At the ends nothing can be under 0 or over 1: such a rule would be an all-clear for ever.
        self._check("below", "a ratio above 0, up to 1", self.below is None or 0.0 < self.below <= 1.0)
        self._check("drop", "a ratio from 0 up to, not including, 1", self.drop is None or 0.0 <= self.drop < 1.0)
        self._check("above", "a ratio from 0 up to, not including, 1", self.above is None or 0.0 <= self.above < 1.0)

    def _check(self, key: str, expected: str, holds: bool) -> None:  # noqa: FBT001  a verdict, not a switch
        if not holds:
            raise ValueError(f"alert {self.name}: {key}: expected {expected}, found {getattr(self, key)!r}")

    @property
    def upward(self) -> bool:
        """Whether it fires over its threshold, not under it."""
        return self.above is not None or self.kind is Kind.DISAGREEMENT

    @property
    def fingerprint(self) -> str:
        """A text that changes when the rule's meaning does: not with its name, its severity or its segments."""
        numbers = {
            "below": self.below,
            "drop": self.drop,
            "above": self.above,
            "for": self.for_seconds,
            "hysteresis": self.hysteresis,
            "new_records": self.new_records,
            "after": self.after_seconds,
        }
        told = [f"{key}={float(number)!r}" for key, number in numbers.items() if number is not None]
        return " ".join([self.kind, f"estimator={self.estimator}", f"on={self.on}", *told])

    def threshold(self, reference_accuracy: float | None) -> float | None:
        """Return the ratio to compare with; None where there is none, or none that is known without the window."""
        if self.drop is not None:
            # Never below 0: where the reference is that poor, the rule cannot fire, and shows a threshold of 0.
            return None if reference_accuracy is None else max(0.0, reference_accuracy - self.drop)
        return self.below if self.below is not None else self.above

    def applies_to(self, segment: str) -> bool:
        """Tell whether the rule is for a segment, by its name."""
        if self.kind is Kind.DEGRADED_INPUT:
            # Records are refused before anybody knows their segment: one fact of the model, one alert.
            return segment == _WHOLE
        return any(pattern == "*" or _matches(pattern, segment) for pattern in self.segments)

    def new_records_of(self, records: int) -> int:
        """Return how many records must be new in a window of this many. At least one: silence judges nothing."""
        # The small step keeps a product that is whole but for rounding from asking for one more.
        return max(1, math.ceil(self.new_records * records - 1e-9))


def _matches(pattern: str, segment: str) -> bool:
    """Compare whole names, * standing for anything but a comma, so that `site=*` means each site and not its scanners."""
    return re.fullmatch("[^,]*".join(map(re.escape, pattern.split("*"))), segment) is not None


def runbook(kind: Kind, *, upward: bool) -> str:
    """Return the name of the page for people on call: an accuracy too good to be true has one of its own."""
    return "accuracy_high.md" if kind is Kind.ACCURACY and upward else f"{kind}.md"
