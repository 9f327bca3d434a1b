"""Records as columns: vectors, event times, and texts that are dictionary-encoded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats, Integers, Singles


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


@dataclass(frozen=True, slots=True)
class Records:
    """A batch of one model's records, as columns."""

    vectors: Singles
    at: Floats
    """Event times; NaN if unknown."""
    fields: Mapping[str, Texts] = field(default_factory=dict)
    """Segment fields; empty string for a missing value."""
    versions: Texts | None = None
    """The model version of each record; empty string if unknown."""

    def taken(self, rows: Integers) -> "Records":
        """Return some of the records."""
        fields = {name: column.taken(rows) for name, column in self.fields.items()}
        versions = None if self.versions is None else self.versions.taken(rows)
        return Records(self.vectors[rows], self.at[rows], fields, versions)


def joined(batches: Sequence[Records]) -> Records:
    """Return the concatenation of batches of one model."""
    if len(batches) == 1:
        return batches[0]
    names = {name for batch in batches for name in batch.fields}
    return Records(
        np.concatenate([batch.vectors for batch in batches]),
        np.concatenate([batch.at for batch in batches]),
        {name: Texts.joined([batch.fields.get(name) or _blank(batch) for batch in batches]) for name in sorted(names)},
        Texts.joined([batch.versions or _blank(batch) for batch in batches])
        if any(batch.versions for batch in batches)
        else None,
    )


def _blank(batch: Records) -> Texts:
    return Texts(("",), np.zeros(len(batch.at), dtype=np.int64))
