"""Record times: numbers since 1970 in a declared unit, or ISO 8601 strings with a time zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

import numpy as np

from monitor.records.record_schema import TimeUnit
from monitor.records.vectors import Booleans, Floats, floats_of

LATEST = 1e11
"""The year 5138, in Unix seconds. Later times are in another unit."""

# The years 2001 to 5138 in each unit.
_LIKELY = {unit: (1e9 * unit.per_second, LATEST * unit.per_second) for unit in TimeUnit}


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The format of record times."""

    unit: TimeUnit = TimeUnit.SECONDS
    zone: tzinfo | None = None
    """The time zone of strings without one; None to reject them."""

    def read(self, values: Sequence[object] | None, count: int) -> tuple[Floats, Booleans]:
        """Return the times in Unix seconds, NaN where missing, and which values are invalid."""
        if values is None or (values[0] is None and values.count(None) == count):
            return np.full(count, np.nan), np.zeros(count, dtype=np.bool_)
        if type(values[0]) is float and (floats := floats_of(values)) is not None:
            return self._seconds(floats, np.False_)
        absent = np.array([value is None for value in values], dtype=np.bool_)
        texts = {place: self._of_text(value) for place, value in enumerate(values) if isinstance(value, str)}
        numbers = _floats([value if type(value) in {int, float} else np.nan for value in values])
        seconds, wrong = self._seconds(numbers, absent)
        for place, found in texts.items():
            seconds[place] = found
            wrong[place] = not 0.0 <= found <= LATEST
        return seconds, wrong

    def unit_like(self, values: Sequence[object]) -> TimeUnit | None:
        """Return the unit that most of the rejected times seem to have, if any."""
        numbers = np.array([value for value in values if type(value) in {int, float}], dtype=np.float64)
        for unit in TimeUnit:
            low, high = _LIKELY[unit]
            if unit is not self.unit and 2 * np.count_nonzero((numbers >= low) & (numbers < high)) > len(values):
                return unit
        return None

    def _seconds(self, numbers: Floats, absent: Booleans | np.bool_) -> tuple[Floats, Booleans]:
        seconds = numbers if self.unit is TimeUnit.SECONDS else numbers / self.unit.per_second
        # NaN is wrong too.
        wrong: Booleans = ~((seconds >= 0.0) & (seconds <= LATEST)) & ~absent
        return seconds, wrong

    def _of_text(self, text: str) -> float:
        """Return the time of a string, or NaN."""
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                if self.zone is None:
                    return np.nan
                moment = moment.replace(tzinfo=self.zone)
            return moment.timestamp()
        except (ValueError, OverflowError):
            return np.nan


def _floats(values: Sequence[object]) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return np.inf
