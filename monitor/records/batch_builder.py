"""Applies the rules on records, for every format: column blocks in, record batches out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.record_columns import Records
from monitor.records.columns import IdColumn, TextColumn, Values, compact, text_of
from monitor.records.formats.text import LineBlock
from monitor.records.hints import CONFIG_FILE, RECENT, RecentRecords, Wording
from monitor.records.id_hash import hash_ids
from monitor.records.labels import NO_CLASS, Indices, LabelRules
from monitor.records.record_batch import (
    MOST_POINTERS,
    Pointer,
    RecordBatch,
    RejectedRecord,
    StreamRejections,
    bare_pointer,
)
from monitor.records.record_schema import ModelFormat, reason_of_length
from monitor.records.rejections import Reason
from monitor.records.times import TimeRules
from monitor.records.vectors import ACCEPTED, Booleans, CheckedVectors, Floats, Singles, check_vectors, mark, reason_of


class ModelRouter:
    """Finds the model of a record: the one it names, or the only one."""

    def __init__(self, models: Sequence[ModelFormat]) -> None:
        self._models = {model.name: model for model in models}
        self._only = models[0] if len(models) == 1 else None

    def find(self, value: object) -> ModelFormat | Reason:
        """Return the model that a record names, or the reason for its rejection."""
        if value is None:
            return Reason.MISSING_FIELD if self._only is None else self._only
        # Unknown names are never shown: they may be anything.
        return self._models.get(text_of(value) or "", Reason.UNKNOWN_MODEL)

    def split(self, values: Values | None, count: int) -> Iterator[tuple[ModelFormat | Reason, Indices]]:
        """Yield the models, or reasons for rejection, with the rows of their records."""
        if values is None or values.count(values[0]) == count:
            yield self.find(None if values is None else values[0]), np.arange(count)
            return
        found: dict[tuple[type, object], ModelFormat | Reason] = {}
        indexes: dict[str, list[int]] = {}
        targets: dict[str, ModelFormat | Reason] = {}
        for index, value in enumerate(values):
            # True == 1, so the key includes the type.
            key = (type(value), value) if isinstance(value, str | int | float | None) else (type(value), None)
            target = found.get(key)
            if target is None:
                target = found[key] = self.find(value)
            name = f"model {target.name}" if isinstance(target, ModelFormat) else str(target)
            targets[name] = target
            indexes.setdefault(name, []).append(index)
        for name, rows in indexes.items():
            yield targets[name], np.array(rows, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """At least one record of one model, as columns; None for an absent column."""

    numbers: Indices
    """The line or row of each record in the block, from 0."""
    outputs: Floats
    """Shape (records, numbers per record)."""
    times: Values | None = None
    ids: Values | None = None
    versions: Values | None = None
    predicted: Values | None = None
    segments: tuple[Values | None, ...] = ()
    """In the order of the model's segment fields."""


class ModelRules:
    """The rules on records of one model, and its latest records for hints."""

    def __init__(self, model: ModelFormat, times: TimeRules, hash_key: bytes, wording: Wording = CONFIG_FILE) -> None:
        self.model = model
        self.times = times
        self.recent = RecentRecords(model.kind, times, wording)
        self._hash_key = hash_key
        self._labels = LabelRules(model.classes)

    def hashes(self, ids: Sequence[str]) -> Hashes | None:
        """Return the hashes of ids; None if all are empty."""
        if all(ids):
            return hash_ids(ids, self._hash_key) if ids else None
        present = [one for one in ids if one]
        if not present:
            return None
        hashes = np.full(len(ids), NO_ID, dtype=np.uint64)
        hashes[np.array([bool(one) for one in ids])] = hash_ids(present, self._hash_key)
        return hashes

    def mismatches(self, predicted: Sequence[object], probabilities: Singles) -> int:
        """Count the records whose predicted class, if given, is not their most probable one."""
        rows = np.array([row for row, value in enumerate(predicted) if value is not None], dtype=np.int64)
        indices, _ = self._labels.indices([predicted[row] for row in rows.tolist()])
        vectors = probabilities[rows]
        # An unknown class is a mismatch; of equally probable classes, each is a match.
        own = np.take_along_axis(vectors, np.maximum(indices, 0)[:, np.newaxis], axis=1)[:, 0]
        return int(np.count_nonzero((indices == NO_CLASS) | (own < vectors.max(axis=1, initial=0.0))))


class ModelBatchBuilder:
    """Collects column blocks of one model and applies the rules to all of them at once."""

    def __init__(self, rules: ModelRules) -> None:
        self._rules = rules
        self._numbers: list[Indices] = []
        self._outputs: list[Floats] = []
        self._at: list[Floats] = []
        self._time_errors: list[Booleans] = []
        self._invalid_times: list[object] = []
        self._ids = IdColumn()
        self._versions = TextColumn()
        self._segments = tuple(TextColumn() for _ in rules.model.segment_fields)
        self._predicted: list[object] | None = None

    def add(self, block: ColumnBlock) -> None:
        """Add a column block."""
        count = len(block.numbers)
        self._numbers.append(block.numbers)
        self._outputs.append(block.outputs)
        at, wrong = self._rules.times.read(block.times, count)
        self._at.append(at)
        self._time_errors.append(wrong)
        if block.times is not None and wrong.any():
            self._invalid_times.extend(block.times[row] for row in np.flatnonzero(wrong).tolist())
        self._ids.add(block.ids, count)
        self._versions.add(block.versions, count)
        for column, values in zip(self._segments, block.segments, strict=True):
            column.add(values, count)
        if block.predicted is not None:
            self._predicted = [*(self._predicted or ()), *block.predicted]

    def build(self) -> tuple[Records, list[tuple[int, Reason]]]:
        """Return the accepted records, and the row and reason of each rejected one."""
        rules = self._rules
        outputs = np.concatenate(self._outputs)
        latest = outputs[-RECENT:].copy()
        checked = check_vectors(outputs, rules.model.kind, spend=True)
        codes = checked.codes.copy()
        mark(codes, np.concatenate(self._time_errors), Reason.BAD_TIMESTAMP)
        for column in self._segments:
            if (wrong := column.invalid_segments()) is not None:
                mark(codes, wrong, Reason.BAD_SEGMENT)
        if (wrong := self._versions.invalid_texts()) is not None:
            mark(codes, wrong, Reason.WRONG_TYPE)
        if self._ids.wrong:
            mark(codes, np.isin(np.arange(len(codes)), self._ids.wrong), Reason.WRONG_TYPE)
        rules.recent.add(
            len(outputs), latest, checked.codes[-RECENT:], checked.probabilities[-RECENT:], self._invalid_times
        )
        if not codes.any():
            return self._accepted(checked, None), []
        kept = np.flatnonzero(codes == ACCEPTED)
        numbers = np.concatenate(self._numbers)
        rejected = np.flatnonzero(codes).tolist()
        return self._accepted(checked, kept), [(int(numbers[row]), reason_of(int(codes[row]))) for row in rejected]

    def _accepted(self, checked: CheckedVectors, kept: Indices | None) -> Records:
        """Return the records of some rows; of all rows if `kept` is None."""
        names = self._rules.model.segment_fields
        vectors, at, normalised = checked.probabilities, np.concatenate(self._at), checked.normalised
        fields = {name: column.texts() for name, column in zip(names, self._segments, strict=True)}
        versions, ids, predicted = self._versions.texts(), self._ids.ids, self._predicted
        if kept is not None:
            vectors, at, normalised = vectors[kept], at[kept], normalised[kept]
            fields = {name: compact(column, kept) for name, column in fields.items()}
            versions = compact(versions, kept)
            rows = kept.tolist()
            ids = [ids[row] for row in rows]
            predicted = None if predicted is None else [predicted[row] for row in rows]
        return Records(
            vectors,
            at,
            fields,
            None if set(versions.values) <= {""} else versions,
            self._rules.hashes(ids),
            normalised=int(np.count_nonzero(normalised)),
            argmax_mismatches=0 if predicted is None else self._rules.mismatches(predicted, vectors),
        )


class BatchBuilder:
    """Builds a record batch from column blocks, and from records that the format's reader rejects."""

    def __init__(
        self, where: str, rules: Mapping[str, ModelRules], first_number: int, *, is_ascii: bool = False
    ) -> None:
        self.where = where
        self.rules = rules
        self.is_ascii = is_ascii
        self.ignored = 0
        self._first = first_number
        self._rejections = StreamRejections()
        self._pending: dict[str, ModelBatchBuilder] = {}
        self._accepted: dict[str, list[Records]] = {}

    def add(self, model: str, columns: ColumnBlock) -> None:
        """Add a column block; it is checked when the block ends."""
        if model not in self._pending:
            self._pending[model] = ModelBatchBuilder(self.rules[model])
        self._pending[model].add(columns)

    def reject(self, model: str, index: int, reason: Reason, block: LineBlock | None = None) -> None:
        """Reject the record at an index of a block of lines, or at a row."""
        if block is None:
            rejected = RejectedRecord(self._first + index, reason)
        else:
            start, end = block.bounds(index)
            number = self._first + block.first + index
            rejected = RejectedRecord(number, reason, block.start + start, block.start + end)
        self._rejections.add(model, rejected)

    def reject_all(self, model: str, indexes: Sequence[int], reason: Reason, block: LineBlock | None = None) -> None:
        """Reject the records at several ascending indexes."""
        self._rejections.count(model, reason, len(indexes) - MOST_POINTERS)
        for index in indexes[-MOST_POINTERS:]:
            self.reject(model, index, reason, block)

    def end_block(self, block: LineBlock | None = None) -> None:
        """Check the records added since the last block."""
        for name, pending in self._pending.items():
            accepted, rejected = pending.build()
            self._accepted.setdefault(name, []).append(accepted)
            for index, reason in rejected:
                self.reject(name, index, reason, block)
        self._pending = {}

    def finish(
        self, rows: int, pointer: Callable[[RejectedRecord], Pointer], non_json_lines: int | None = None
    ) -> RecordBatch:
        """Return the record batch."""
        models = {name: [some for some in blocks if len(some)] for name, blocks in self._accepted.items()}
        hints = {name: rules.recent.hints() for name, rules in self.rules.items()}
        return RecordBatch(
            {name: Records.joined(blocks) for name, blocks in models.items() if blocks},
            self._rejections.counts,
            self._rejections.pointers(pointer),
            self.ignored,
            rows,
            non_json_lines,
            {name: found for name, found in hints.items() if found},
        )


BATCH_ROWS = 8_192
_BATCH_NUMBERS = 1 << 19
"""Numbers in all rows of a batch: 4 MiB of floats."""


def rows_per_batch(width: int) -> int:
    """Return how many rows of a given width make a batch."""
    return max(1, min(BATCH_ROWS, _BATCH_NUMBERS // max(1, width)))


@dataclass(frozen=True, slots=True)
class Vectors:
    """The outputs of some rows, concatenated."""

    flat: Floats
    lengths: Indices
    wrong: Booleans | None = None
    """Which rows contain something other than numbers."""

    @classmethod
    def of(cls, matrix: Floats) -> "Vectors":
        """Return the outputs of a matrix."""
        return cls(matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64))

    def taken(self, rows: Indices, width: int) -> Floats:
        """Return rows of one length as a matrix."""
        if len(rows) == len(self.lengths):
            return self.flat.reshape(len(rows), width)
        starts = np.cumsum(self.lengths) - self.lengths
        some: Floats = self.flat[starts[rows][:, np.newaxis] + np.arange(width)]
        return some


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of some rows; None for an absent column."""

    count: int
    outputs: Mapping[str, Vectors]
    """By model; a model without outputs in the file is missing."""
    models: Values | None = None
    times: Values | None = None
    ids: Values | None = None
    versions: Values | None = None
    predicted: Values | None = None
    segments: Mapping[str, Values | None] = field(default_factory=dict)
    """By field name."""


class RowFiles:
    """Builds record batches from rows of column files."""

    def __init__(self, models: Sequence[ModelFormat], rules: Mapping[str, ModelRules]) -> None:
        self._router = ModelRouter(models)
        self._rules = rules

    def batch(self, where: str, first: int, columns: RowColumns) -> RecordBatch:
        """Return the batch of some rows; `first` is the number of the first row in the file, from 1."""
        builder = BatchBuilder(where, self._rules, first)
        for model, rows in self._router.split(columns.models, columns.count):
            if isinstance(model, ModelFormat) and model.name not in columns.outputs:
                _reject(builder, model.name, rows, Reason.MISSING_FIELD)
            elif isinstance(model, Reason):
                _reject(builder, "", rows, model)
            else:
                _add_records(model, rows, columns, builder)
        builder.end_block()
        return builder.finish(columns.count, bare_pointer)


def _reject(builder: BatchBuilder, model: str, rows: Indices, reason: Reason) -> None:
    for row in rows.tolist():
        builder.reject(model, row, reason)


def _add_records(model: ModelFormat, rows: Indices, columns: RowColumns, builder: BatchBuilder) -> None:
    vectors = columns.outputs[model.name]
    if vectors.wrong is not None:
        _reject(builder, model.name, rows[vectors.wrong[rows]], Reason.WRONG_TYPE)
        rows = rows[~vectors.wrong[rows]]
    for length in np.unique(vectors.lengths[rows]).tolist():
        if (reason := reason_of_length(length, model)) is not None:
            _reject(builder, model.name, rows[vectors.lengths[rows] == length], reason)
    rows = rows[vectors.lengths[rows] == model.width]
    if not len(rows):
        return
    indexes = rows.tolist()

    def some(values: Values | None) -> Values | None:
        return values if values is None or len(indexes) == columns.count else [values[index] for index in indexes]

    builder.add(
        model.name,
        ColumnBlock(
            rows,
            vectors.taken(rows, model.width),
            some(columns.times),
            some(columns.ids),
            some(columns.versions),
            some(columns.predicted),
            tuple(some(columns.segments.get(name)) for name in model.segment_fields),
        ),
    )
