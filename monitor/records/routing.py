"""Which model a record belongs to: the one it names, or the only one there is."""

from collections.abc import Iterator, Sequence

import numpy as np

from monitor.records.columns import Values, text_of
from monitor.records.labels import Indices
from monitor.records.record_schema import ModelFormat
from monitor.records.rejections import Reason


class Routes:
    """The models of a stream by name."""

    def __init__(self, models: Sequence[ModelFormat]) -> None:
        self._models = {model.name: model for model in models}
        self._only = models[0] if len(models) == 1 else None

    def find(self, value: object) -> ModelFormat | Reason:
        """Return the model that a record names, or why there is none."""
        if value is None:
            return Reason.MISSING_FIELD if self._only is None else self._only
        # A name that is not configured may be anything, so it is never quoted.
        return self._models.get(text_of(value) or "", Reason.UNKNOWN_MODEL)

    def split(self, values: Values | None, count: int) -> Iterator[tuple[ModelFormat | Reason, Indices]]:
        """Yield each model that some records name, with their places; and why others have none."""
        if values is None or values.count(values[0]) == count:
            yield self.find(None if values is None else values[0]), np.arange(count)
            return
        found: dict[tuple[type, object], ModelFormat | Reason] = {}
        places: dict[str, list[int]] = {}
        answers: dict[str, ModelFormat | Reason] = {}
        for place, value in enumerate(values):
            # True equals 1 and hashes alike, so only values of one type may share an answer.
            key = (type(value), value) if isinstance(value, str | int | float | None) else (type(value), None)
            answer = found.get(key)
            if answer is None:
                answer = found[key] = self.find(value)
            name = f"model {answer.name}" if isinstance(answer, ModelFormat) else str(answer)
            answers[name] = answer
            places.setdefault(name, []).append(place)
        for name, rows in places.items():
            yield answers[name], np.array(rows, dtype=np.int64)
