"""The counters of ingestion: a closed set, each counted by its labels."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

StoredCounters = dict[tuple[str, ...], int]
"""By name and labels, as the state stores them: `("records_total", "inbox", "density")`."""


_MODEL, _SOURCE_MODEL = {"labels": ("model",)}, {"labels": ("source", "model")}
_REASON, _EVENT = {"labels": ("source", "reason")}, {"labels": ("source", "event")}
_FROM, _NONE = {"labels": ("from",)}, {"labels": ()}


@dataclass(slots=True)
class Counters:
    """Counts since the state was created, or those of one commit. The order is that of the metrics page."""

    records: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SOURCE_MODEL)
    records_rejected: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_REASON)
    records_normalised: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_argmax_mismatch: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_future: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_other_version: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_unstored_segment: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_late: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_evicted: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    source_events: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_EVENT)
    state_recovered: Counter[str] = field(default_factory=Counter, metadata=_FROM)
    state_damaged_chunks: Counter[tuple[()]] = field(default_factory=Counter, metadata=_NONE)
    resumed: Counter[tuple[()]] = field(default_factory=Counter, metadata=_NONE)

    @classmethod
    def from_stored(cls, stored: Mapping[tuple[str, ...], int]) -> "Counters":
        """Return stored counters; unknown ones, of another version of cpcmon, stay in the state only."""
        counters = cls()
        known = {f"{one.name}_total": (getattr(counters, one.name), one.metadata["labels"]) for one in fields(cls)}
        for (name, *labels), count in stored.items():
            counter, expected = known.get(name, (None, ()))
            if counter is not None and len(labels) == len(expected):
                counter[labels[0] if len(labels) == 1 else tuple(labels)] = count
        return counters

    def stored(self) -> StoredCounters:
        """Return the counters as the state stores them."""
        return {(name, *labels): count for name, _, counts in self.families() for labels, count in counts.items()}

    def families(self) -> Iterator[tuple[str, tuple[str, ...], dict[tuple[str, ...], int]]]:
        """Yield the name of each counter, the names of its labels, and the counts by label values."""
        for one in fields(self):
            counts = getattr(self, one.name)
            by_labels = {key if isinstance(key, tuple) else (key,): count for key, count in counts.items()}
            yield f"{one.name}_total", one.metadata["labels"], by_labels

    def add(self, other: "Counters") -> None:
        """Add other counts to these."""
        for one in fields(self):
            getattr(self, one.name).update(getattr(other, one.name))

    def copy(self) -> "Counters":
        """Return a copy."""
        return Counters(*(getattr(self, one.name).copy() for one in fields(self)))
