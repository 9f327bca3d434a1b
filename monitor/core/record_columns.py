"""Records as columns: vectors, event times, and texts that are dictionary-encoded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.scores import Booleans, Floats, Integers, Singles


@dataclass(frozen=True, slots=True)
class Texts:
    """A dictionary-encoded column of strings."""

    values: tuple[str, ...]
    codes: NDArray[np.int64]
    """The index of each record's string in `values`."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        """Return a column of these strings."""
        places: dict[str, int] = {}
        codes = [places.setdefault(text, len(places)) for text in texts]
        return cls(tuple(places), np.array(codes, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.codes)

    def taken(self, rows: Integers) -> "Texts":
        """Return the column of some rows."""
        return Texts(self.values, self.codes[rows])

    @classmethod
    def joined(cls, columns: "Sequence[Texts]") -> "Texts":
        """Return the concatenation of columns."""
        if len({column.values for column in columns}) == 1:
            return cls(columns[0].values, np.concatenate([column.codes for column in columns]))
        places: dict[str, int] = {}
        codes = []
        for column in columns:
            place = [places.setdefault(value, len(places)) for value in column.values]
            codes.append(np.array(place, dtype=np.int64)[column.codes])
        return cls(tuple(places), np.concatenate(codes))

    def texts(self) -> list[str]:
        """Return the string of each record."""
        return [self.values[code] for code in self.codes.tolist()]

    def are(self, text: str) -> NDArray[np.bool_]:
        """Return which records have this string."""
        return np.array([value == text for value in self.values], dtype=np.bool_)[self.codes]


REFERRED = -1
"""In place of a class: the device referred the record to a person."""


@dataclass(frozen=True, slots=True)
class Records:
    """A batch of one model's records in arrival order, as columns."""

    vectors: Singles
    at: Floats
    """Event times; NaN if unknown."""
    fields: Mapping[str, Texts] = field(default_factory=dict)
    """Segment fields; empty string for a missing value."""
    versions: Texts | None = None
    """The model version of each record; empty string if unknown."""
    ids: Hashes | None = None
    """Keyed hashes of the record ids, NO_ID for a record without one; None if no record has an id."""
    labels: Integers | None = None
    """The index of each record's true class; None without labels."""
    normalised: int = 0
    """Vectors whose sum differed from 1 by more than rounding."""
    argmax_mismatches: int = 0
    """Records whose predicted class is not the one decided from their probabilities."""
    decided: Integers | None = None
    """The index of the class that each record names as its decision, or REFERRED; None unless records decide."""
    groups: Hashes | None = None
    """Keyed hashes of the groups, NO_ID for a record without one; None unless the model has groups."""
    counted: Booleans | None = None
    """Which records may count as evidence of a change; None for all."""
    audited_ids: Mapping[int, str] = field(default_factory=dict)
    """By hash, the ids of audited records, of models that keep them. May have more than are among the records."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.at)

    def taken(self, rows: Integers) -> "Records":
        """Return some of the records, without the counts."""
        return Records(
            self.vectors[rows],
            self.at[rows],
            {name: column.taken(rows) for name, column in self.fields.items()},
            None if self.versions is None else self.versions.taken(rows),
            None if self.ids is None else self.ids[rows],
            None if self.labels is None else self.labels[rows],
            decided=None if self.decided is None else self.decided[rows],
            groups=None if self.groups is None else self.groups[rows],
            counted=None if self.counted is None else self.counted[rows],
            audited_ids=self.audited_ids,
        )

    def without_referred(self) -> "Records":
        """Return the records that were not referred to a person, with the counts."""
        if self.decided is None or not (self.decided == REFERRED).any():
            return self
        kept = self.taken(np.flatnonzero(self.decided != REFERRED))
        return replace(kept, normalised=self.normalised, argmax_mismatches=self.argmax_mismatches)

    @classmethod
    def joined(cls, batches: "Sequence[Records]") -> "Records":
        """Return the concatenation of batches of one model; all or none of them have labels, decisions, and groups."""
        if len(batches) == 1:
            return batches[0]
        names = {name for batch in batches for name in batch.fields}
        labels = [batch.labels for batch in batches if batch.labels is not None]
        decided = [batch.decided for batch in batches if batch.decided is not None]
        groups = [batch.groups for batch in batches if batch.groups is not None]
        return cls(
            np.concatenate([batch.vectors for batch in batches]),
            np.concatenate([batch.at for batch in batches]),
            {
                name: Texts.joined([batch.fields.get(name) or _blank(batch) for batch in batches])
                for name in sorted(names)
            },
            Texts.joined([batch.versions or _blank(batch) for batch in batches])
            if any(batch.versions for batch in batches)
            else None,
            np.concatenate([_no_ids(batch) if batch.ids is None else batch.ids for batch in batches])
            if any(batch.ids is not None for batch in batches)
            else None,
            np.concatenate(labels) if labels else None,
            sum(batch.normalised for batch in batches),
            sum(batch.argmax_mismatches for batch in batches),
            np.concatenate(decided) if decided else None,
            np.concatenate(groups) if groups else None,
            np.concatenate(
                [np.ones(len(batch), dtype=np.bool_) if batch.counted is None else batch.counted for batch in batches]
            )
            if any(batch.counted is not None for batch in batches)
            else None,
            {hash_: id_ for batch in batches for hash_, id_ in batch.audited_ids.items()},
        )


def _blank(batch: Records) -> Texts:
    return Texts(("",), np.zeros(len(batch), dtype=np.int64))


def _no_ids(batch: Records) -> Hashes:
    return np.full(len(batch), NO_ID, dtype=np.uint64)
