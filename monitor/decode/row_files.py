"""Rows of a file of columns, a bounded number at a time, on their way into candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.decode.arrived import Arrived
from monitor.decode.columns import Values
from monitor.decode.gathering import Candidates, ModelRules
from monitor.decode.labels import Indices
from monitor.decode.piece import PieceGathering
from monitor.decode.record_format import ModelFormat, reason_of_length
from monitor.decode.refusals import bare_pointer
from monitor.decode.rejections import Reason
from monitor.decode.routing import Routes
from monitor.decode.vectors import Booleans, Floats

PIECE_ROWS = 8_192
_PIECE_NUMBERS = 1 << 19
"""Numbers of all rows of a piece: 4 MiB of floats."""


def rows_a_piece(width: int) -> int:
    """Return how many rows of so many numbers are read together."""
    return max(1, min(PIECE_ROWS, _PIECE_NUMBERS // max(1, width)))


@dataclass(frozen=True, slots=True)
class Vectors:
    """The outputs of some rows, one after the other."""

    flat: Floats
    lengths: Indices
    wrong: Booleans | None = None
    """Which rows hold something that is no number."""

    @classmethod
    def of(cls, matrix: Floats) -> "Vectors":
        """Return the rows of a matrix."""
        return cls(matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64))

    def taken(self, rows: Indices, width: int) -> Floats:
        """Return some rows, all of which have this length."""
        if len(rows) == len(self.lengths):
            return self.flat.reshape(len(rows), width)
        starts = np.cumsum(self.lengths) - self.lengths
        some: Floats = self.flat[starts[rows][:, np.newaxis] + np.arange(width)]
        return some


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of some rows; a column that is None is absent."""

    count: int
    outputs: Mapping[str, Vectors]
    """By model; one that is not there has no outputs in the file."""
    models: Values | None = None
    times: Values | None = None
    ids: Values | None = None
    versions: Values | None = None
    predicted: Values | None = None
    segments: Mapping[str, Values | None] = field(default_factory=dict)
    """By the name of the field."""


class RowFiles:
    """Hands the rows of files over to the rules."""

    def __init__(self, models: Sequence[ModelFormat], rules: Mapping[str, ModelRules]) -> None:
        self._routes = Routes(models)
        self._rules = rules

    def arrived(self, where: str, first: int, columns: RowColumns) -> Arrived:
        """Return what some rows hold, of which the first has this number in the file, counting from 1."""
        piece = PieceGathering(where, self._rules, first)
        for model, rows in self._routes.split(columns.models, columns.count):
            if isinstance(model, ModelFormat) and model.name not in columns.outputs:
                _refuse(piece, model.name, rows, Reason.MISSING_FIELD)
            elif isinstance(model, Reason):
                _refuse(piece, "", rows, model)
            else:
                _hand_over(model, rows, columns, piece)
        piece.end_block()
        return piece.finish(columns.count, bare_pointer)


def _refuse(piece: PieceGathering, model: str, rows: Indices, reason: Reason) -> None:
    for row in rows.tolist():
        piece.refuse(model, row, reason)


def _hand_over(model: ModelFormat, rows: Indices, columns: RowColumns, piece: PieceGathering) -> None:
    vectors = columns.outputs[model.name]
    if vectors.wrong is not None:
        _refuse(piece, model.name, rows[vectors.wrong[rows]], Reason.WRONG_TYPE)
        rows = rows[~vectors.wrong[rows]]
    for length in np.unique(vectors.lengths[rows]).tolist():
        if (reason := reason_of_length(length, model)) is not None:
            _refuse(piece, model.name, rows[vectors.lengths[rows] == length], reason)
    rows = rows[vectors.lengths[rows] == model.width]
    if not len(rows):
        return
    places = rows.tolist()

    def some(values: Values | None) -> Values | None:
        return values if values is None or len(places) == columns.count else [values[place] for place in places]

    piece.add(
        model.name,
        Candidates(
            rows,
            vectors.taken(rows, model.width),
            some(columns.times),
            some(columns.ids),
            some(columns.versions),
            some(columns.predicted),
            tuple(some(columns.segments.get(name)) for name in model.segment_fields),
        ),
    )
