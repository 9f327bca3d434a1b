"""The rules on records of a stream, whatever their format: candidates in, columns by model out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.core.record_columns import Records, joined
from monitor.records.columns import IdColumn, TextColumn, Values, compact, text_of
from monitor.records.formats.text import LineBlock
from monitor.records.hints import IN_A_FILE_OF_SETTINGS, RECENT, Recent, Wording
from monitor.records.id_hash import hash_ids
from monitor.records.labels import NO_CLASS, Indices, LabelRules
from monitor.records.record_batch import (
    MOST_POINTERS,
    NO_ID,
    Hashes,
    ModelRecords,
    Pointer,
    RecordBatch,
    RejectedRecord,
    StreamRejections,
    bare_pointer,
)
from monitor.records.record_schema import ModelFormat, reason_of_length
from monitor.records.rejections import Reason
from monitor.records.times import TimeRules
from monitor.records.vectors import ACCEPTED, Booleans, Floats, Judged, Singles, judge, mark, reason_of


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


@dataclass(frozen=True, slots=True)
class Candidates:
    """Records of one model, as columns; a column that is None is absent. There is at least one record."""

    numbers: Indices
    """Where each stands in the block or piece: its line or row, counting from 0."""
    outputs: Floats
    """Shape (records, numbers a record)."""
    times: Values | None = None
    ids: Values | None = None
    versions: Values | None = None
    predicted: Values | None = None
    segments: tuple[Values | None, ...] = ()
    """In the order of the model's segment fields."""


class ModelRules:
    """The rules on the records of one model, and how its latest records looked."""

    def __init__(
        self, model: ModelFormat, times: TimeRules, hash_key: bytes, wording: Wording = IN_A_FILE_OF_SETTINGS
    ) -> None:
        self.model = model
        self.times = times
        self.recent = Recent(model.kind, times, wording)
        self._hash_key = hash_key
        self._labels = LabelRules(model.classes)

    def hashes(self, ids: Sequence[str]) -> Hashes | None:
        """Return the hashes of ids; None when all are empty."""
        if all(ids):
            return hash_ids(ids, self._hash_key) if ids else None
        present = [one for one in ids if one]
        if not present:
            return None
        hashes = np.full(len(ids), NO_ID, dtype=np.uint64)
        hashes[np.array([bool(one) for one in ids])] = hash_ids(present, self._hash_key)
        return hashes

    def mismatches(self, predicted: Sequence[object], probabilities: Singles) -> int:
        """Count the records whose predicted class, where they have one, is not their most probable one."""
        rows = np.array([row for row, value in enumerate(predicted) if value is not None], dtype=np.int64)
        indices, _ = self._labels.indices([predicted[row] for row in rows.tolist()])
        vectors = probabilities[rows]
        # What names no class agrees with none; of classes that are equally probable, any may have been predicted.
        own = np.take_along_axis(vectors, np.maximum(indices, 0)[:, np.newaxis], axis=1)[:, 0]
        return int(np.count_nonzero((indices == NO_CLASS) | (own < vectors.max(axis=1, initial=0.0))))


class BatchBuilder:
    """Takes the candidates of one model, batch by batch, and judges them together."""

    def __init__(self, rules: ModelRules) -> None:
        self._rules = rules
        self._numbers: list[Indices] = []
        self._outputs: list[Floats] = []
        self._at: list[Floats] = []
        self._wrong_times: list[Booleans] = []
        self._odd_times: list[object] = []
        self._ids = IdColumn()
        self._versions = TextColumn()
        self._segments = tuple(TextColumn() for _ in rules.model.segment_fields)
        self._predicted: list[object] | None = None

    def add(self, given: Candidates) -> None:
        """Take some records."""
        count = len(given.numbers)
        self._numbers.append(given.numbers)
        self._outputs.append(given.outputs)
        at, wrong = self._rules.times.read(given.times, count)
        self._at.append(at)
        self._wrong_times.append(wrong)
        if given.times is not None and wrong.any():
            self._odd_times.extend(given.times[row] for row in np.flatnonzero(wrong).tolist())
        self._ids.add(given.ids, count)
        self._versions.add(given.versions, count)
        for column, values in zip(self._segments, given.segments, strict=True):
            column.add(values, count)
        if given.predicted is not None:
            self._predicted = [*(self._predicted or ()), *given.predicted]

    def judged(self) -> tuple[ModelRecords, list[tuple[int, Reason]]]:
        """Return the records that break no rule, and where the others stand with what they break."""
        rules = self._rules
        outputs = np.concatenate(self._outputs)
        latest = outputs[-RECENT:].copy()
        judged = judge(outputs, rules.model.kind, spend=True)
        codes = judged.codes.copy()
        mark(codes, np.concatenate(self._wrong_times), Reason.BAD_TIMESTAMP)
        for column in self._segments:
            if (wrong := column.are_no_segments()) is not None:
                mark(codes, wrong, Reason.BAD_SEGMENT)
        if (wrong := self._versions.are_no_texts()) is not None:
            mark(codes, wrong, Reason.WRONG_TYPE)
        if self._ids.wrong:
            mark(codes, np.isin(np.arange(len(codes)), self._ids.wrong), Reason.WRONG_TYPE)
        rules.recent.add(len(outputs), latest, judged.codes[-RECENT:], judged.probabilities[-RECENT:], self._odd_times)
        if not codes.any():
            return self._accepted(judged, None), []
        kept = np.flatnonzero(codes == ACCEPTED)
        numbers = np.concatenate(self._numbers)
        refused = np.flatnonzero(codes).tolist()
        return self._accepted(judged, kept), [(int(numbers[row]), reason_of(int(codes[row]))) for row in refused]

    def _accepted(self, judged: Judged, kept: Indices | None) -> ModelRecords:
        """Return the records at some rows, or all of them."""
        names = self._rules.model.segment_fields
        vectors, at, normalised = judged.probabilities, np.concatenate(self._at), judged.normalised
        fields = {name: column.texts() for name, column in zip(names, self._segments, strict=True)}
        versions, ids, predicted = self._versions.texts(), self._ids.ids, self._predicted
        if kept is not None:
            vectors, at, normalised = vectors[kept], at[kept], normalised[kept]
            fields = {name: compact(column, kept) for name, column in fields.items()}
            versions = compact(versions, kept)
            rows = kept.tolist()
            ids = [ids[row] for row in rows]
            predicted = None if predicted is None else [predicted[row] for row in rows]
        return ModelRecords(
            Records(vectors, at, fields, None if set(versions.values) <= {""} else versions),
            self._rules.hashes(ids),
            int(np.count_nonzero(normalised)),
            0 if predicted is None else self._rules.mismatches(predicted, vectors),
        )


def _joined(blocks: Sequence[ModelRecords]) -> ModelRecords | None:
    """Return the records of several blocks of one model; None when there are none."""
    blocks = [block for block in blocks if len(block)]
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    ids = [np.full(len(block), NO_ID, dtype=np.uint64) if block.ids is None else block.ids for block in blocks]
    return ModelRecords(
        joined([block.records for block in blocks]),
        np.concatenate(ids) if any(block.ids is not None for block in blocks) else None,
        sum(block.normalised for block in blocks),
        sum(block.argmax_mismatches for block in blocks),
    )


class BlockBuilder:
    """Takes the candidates of one piece, block by block, and what its reader refuses by itself."""

    def __init__(
        self, where: str, rules: Mapping[str, ModelRules], first_number: int, *, is_ascii: bool = False
    ) -> None:
        self.where = where
        self.rules = rules
        self.is_ascii = is_ascii
        self.ignored = 0
        self._first = first_number
        self._refusals = StreamRejections()
        self._waiting: dict[str, BatchBuilder] = {}
        self._accepted: dict[str, list[ModelRecords]] = {}

    def add(self, model: str, candidates: Candidates) -> None:
        """Take some records of a model; they are judged when the block ends."""
        if model not in self._waiting:
            self._waiting[model] = BatchBuilder(self.rules[model])
        self._waiting[model].add(candidates)

    def refuse(self, model: str, place: int, reason: Reason, block: LineBlock | None = None) -> None:
        """Refuse the record at a place of a block of lines, or at a row of the piece."""
        if block is None:
            refused = RejectedRecord(self._first + place, reason)
        else:
            start, end = block.bounds(place)
            number = self._first + block.first + place
            refused = RejectedRecord(number, reason, block.start + start, block.start + end)
        self._refusals.add(model, refused)

    def refuse_all(self, model: str, places: Sequence[int], reason: Reason, block: LineBlock | None = None) -> None:
        """Refuse the records at several places, which stand in order, for one reason."""
        self._refusals.count(model, reason, len(places) - MOST_POINTERS)
        for place in places[-MOST_POINTERS:]:
            self.refuse(model, place, reason, block)

    def end_block(self, block: LineBlock | None = None) -> None:
        """Judge what waits; places are those of this block."""
        for name, waiting in self._waiting.items():
            accepted, refused = waiting.judged()
            self._accepted.setdefault(name, []).append(accepted)
            for place, reason in refused:
                self.refuse(name, place, reason, block)
        self._waiting = {}

    def finish(
        self, rows: int, pointer: Callable[[RejectedRecord], Pointer], unproven: int | None = None
    ) -> RecordBatch:
        """Return what the piece held."""
        models = {name: _joined(blocks) for name, blocks in self._accepted.items()}
        hints = {name: rules.recent.hints() for name, rules in self.rules.items()}
        return RecordBatch(
            {name: records for name, records in models.items() if records is not None},
            self._refusals.counts,
            self._refusals.pointers(pointer),
            self.ignored,
            rows,
            unproven,
            {name: told for name, told in hints.items() if told},
        )


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

    def arrived(self, where: str, first: int, columns: RowColumns) -> RecordBatch:
        """Return what some rows hold, of which the first has this number in the file, counting from 1."""
        piece = BlockBuilder(where, self._rules, first)
        for model, rows in self._routes.split(columns.models, columns.count):
            if isinstance(model, ModelFormat) and model.name not in columns.outputs:
                _refuse(piece, model.name, rows, Reason.MISSING_FIELD)
            elif isinstance(model, Reason):
                _refuse(piece, "", rows, model)
            else:
                _hand_over(model, rows, columns, piece)
        piece.end_block()
        return piece.finish(columns.count, bare_pointer)


def _refuse(piece: BlockBuilder, model: str, rows: Indices, reason: Reason) -> None:
    for row in rows.tolist():
        piece.refuse(model, row, reason)


def _hand_over(model: ModelFormat, rows: Indices, columns: RowColumns, piece: BlockBuilder) -> None:
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
