"""What happened beside the records, kept until a delivery takes it along."""

from collections import Counter
from dataclasses import dataclass, field

from monitor.sources.base import Delivery


@dataclass(slots=True)
class Notes:
    """Counts and sentences. Used by the thread that ingests."""

    counted: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _standing: dict[str, str] = field(default_factory=dict)

    def warn_once(self, about: str, sentence: str) -> bool:
        """Say something that goes on, when it begins or becomes another, and tell whether it did."""
        if self._standing.get(about) == sentence:
            return False
        self._standing[about] = sentence
        self.warnings.append(sentence)
        return True

    def over(self, about: str, sentence: str) -> None:
        """Say that something that went on is over, if it did."""
        if self._standing.pop(about, None) is not None:
            self.events.append(sentence)

    def take(self, origin: str, owned: frozenset[str] | None = None) -> Delivery | None:
        """Return a delivery without records; None when there is nothing to say."""
        self.counted = +self.counted
        if not (self.counted or self.events or self.warnings) and owned is None:
            return None
        counted, self.counted = self.counted, Counter()
        events, self.events = tuple(self.events), []
        warnings, self.warnings = tuple(self.warnings), []
        return Delivery(origin, counted=counted, events=events, warnings=warnings, owned=owned)
