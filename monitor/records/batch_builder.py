"""Applies the rules on records, for every format: column blocks in, record batches out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
from msgspec import UNSET

from monitor.core.decisions import DecidedBy
from monitor.core.recent_ids import NO_ID
from monitor.core.record_columns import Records, Texts
from monitor.records.columns import (
    NO_CLASS,
    IdColumn,
    LabelRules,
    Labels,
    TextColumn,
    TextSlices,
    TimeRules,
    Values,
    compact,
    text_of,
)
from monitor.records.formats.text import LineBlock
from monitor.records.hints import RECENT, RecentRecords, Tally, Wording
from monitor.records.record_batch import PointerTo, RecordBatch, bare_pointer
from monitor.records.record_schema import Carries, ModelFormat, OutputKind, RecordSchema, numbered
from monitor.records.rejections import (
    DETAILS,
    EXPECTED,
    MOST_POINTERS,
    Reason,
    RejectedRecord,
    RejectionProblem,
    Rejections,
    listed,
    preview,
)
from monitor.records.vectors import (
    ACCEPTED,
    Booleans,
    CheckedVectors,
    Codes,
    Floats,
    Indices,
    Singles,
    Vectors,
    check_vectors,
    expected_of,
    explain,
    mark,
    mark_all,
    reason_of,
)

NOT_A_NUMBER = RejectionProblem(Reason.WRONG_TYPE, "a number", "null")
NO_OUTPUTS = RejectionProblem(Reason.MISSING_FIELD, "the outputs of the record's model", "none in the file")
NO_DECISION = RejectionProblem(Reason.MISSING_FIELD, "the decision of the device", "none")


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """At least one record of one model, as columns; None for an absent column."""

    numbers: Indices
    """The line or row of each record in the block, from 0."""
    outputs: Floats | Vectors
    """Of shape (records, numbers per record), or not checked for their length yet."""
    times: Values | Floats | None = None
    ids: Values | TextSlices | None = None
    versions: Values | Texts | None = None
    predicted: Values | None = None
    """UNSET where the field is missing; None may also mean that."""
    segments: tuple[Values | Texts | None, ...] = ()
    """In the order of the model's segment fields."""
    labels: Labels | None = None
    groups: Values | TextSlices | None = None

    def taken(self, rows: Indices, outputs: Floats | Vectors) -> "ColumnBlock":
        """Return some of the records, with their outputs."""
        if len(rows) == len(self.numbers):
            return replace(self, outputs=outputs)
        return ColumnBlock(
            self.numbers[rows],
            outputs,
            _some(self.times, rows),
            _some(self.ids, rows),
            _some(self.versions, rows),
            _some(self.predicted, rows),
            tuple(_some(values, rows) for values in self.segments),
            _some(self.labels, rows),
            _some(self.groups, rows),
        )


_Column = TypeVar("_Column")


def _some(column: _Column, rows: Indices) -> _Column:
    """Return the values of some rows."""
    found: Any
    match column:
        case None:
            found = None
        case Texts() | TextSlices():
            found = column.taken(rows)
        case Vectors():
            found = column.some(rows)
        case np.ndarray():
            found = column[rows]
        case _:
            values: Any = column
            found = [values[row] for row in rows.tolist()]
    return cast("_Column", found)


class ModelRules:
    """The rules on records of one model, and its latest records for hints.

    With `offline`, rejections are explained, and hints are drawn from all records of the file.
    """

    def __init__(
        self,
        model: ModelFormat,
        times: TimeRules,
        hash_key: bytes,
        wording: Wording,
        *,
        offline: bool,
        carries: Carries = Carries.PREDICTIONS,
    ) -> None:
        if model.classes is None and model.kind is OutputKind.SCORE:
            model = replace(model, classes=numbered(2))
        self.model = model
        self.times = times
        self.offline = offline
        self.expected = {reason: expected_of(reason, model.kind) for reason in Reason}
        """What the rules expect of a record that is rejected with a reason only."""
        self.expected[Reason.BAD_TIMESTAMP] = times.expected
        self.of_labels = carries is Carries.LABELS
        if self.of_labels:
            self.expected[Reason.MISSING_FIELD] = "a label"
            self.expected[Reason.WRONG_TYPE] = "a string or an integer as id, and the name of a class as label"
            self.expected[Reason.OUT_OF_RANGE] = "the name of a class as label"
            self.expected[Reason.UNKNOWN_LABEL] = f"one of the classes {listed(model.classes or ())}"
        self._unknown_label = Reason.LABEL_OUT_OF_RANGE if offline else Reason.UNKNOWN_LABEL
        self.recent = RecentRecords(model.kind, times, wording)
        self.tally = Tally(model.kind)
        self.labels = None if model.classes is None else LabelRules(model.classes, self._unknown_label)
        self.one_past_the_last = False
        """Whether a label was K, where indices run from 0 to K - 1."""
        self.hash_key = hash_key

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Set the classes that the file has."""
        self.model = replace(self.model, classes=classes)
        self.labels = LabelRules(classes, self._unknown_label)

    def note(self, outputs: Floats, latest: Floats, checked: CheckedVectors, invalid_times: Sequence[object]) -> None:
        """Remember records for hints."""
        if self.offline:
            self.tally.add(outputs, checked.codes)
        else:
            codes, probabilities = checked.codes[-RECENT:], checked.probabilities[-RECENT:]
            self.recent.add(len(outputs), latest, codes, probabilities, invalid_times)

    def mismatches(self, predicted: Sequence[object], probabilities: Singles) -> int:
        """Count the records whose predicted class, if given, is not the one decided from their probabilities."""
        given = (row for row, value in enumerate(predicted) if value is not None and value is not UNSET)
        rows = np.fromiter(given, dtype=np.int64)
        indices, _ = self.label_rules(probabilities.shape[1]).indices([predicted[row] for row in rows.tolist()])
        vectors = probabilities[rows]
        if self.model.decision.by is DecidedBy.THRESHOLD:
            return int(np.count_nonzero(indices != self.model.decision.decided(vectors)))
        # An unknown class is a mismatch; of equally probable classes, each is a match.
        own = np.take_along_axis(vectors, np.maximum(indices, 0)[:, np.newaxis], axis=1)[:, 0]
        return int(np.count_nonzero((indices == NO_CLASS) | (own < vectors.max(axis=1, initial=0.0))))

    def check_decisions(self, predicted: Sequence[object], codes: Codes, width: int) -> Indices:
        """Return the classes that records name, REFERRED for null; set the code of rows without one, or with another value."""
        # An invalid one has the index of null, but it is rejected.
        indices, _ = self.label_rules(width).indices(predicted)
        missing = np.array([value is UNSET for value in predicted], dtype=np.bool_)
        null = np.array([value is None for value in predicted], dtype=np.bool_)
        mark(codes, missing, Reason.MISSING_FIELD)
        mark(codes, (indices == NO_CLASS) & ~null, Reason.UNKNOWN_CLASS)
        return indices

    def label_rules(self, classes: int) -> LabelRules:
        """Return the rules on labels; while the classes are unknown, those of unnamed ones."""
        return LabelRules(numbered(classes)) if self.labels is None else self.labels

    def check_labels(self, labels: Labels | None, codes: Codes, width: int) -> Indices | None:
        """Return the class indices of labels; set the code of rows with an invalid label."""
        if labels is None:
            return None
        rules = self.label_rules(width)
        indices, of_labels = rules.indices(labels)
        mark_all(codes, of_labels)
        self.one_past_the_last |= rules.one_past_the_last
        return indices


def model_rules(schema: RecordSchema, hash_key: bytes, wording: Wording) -> dict[str, ModelRules]:
    """Return the rules of each model of a schema."""
    times = TimeRules(schema.fields.time_unit, schema.fields.zone())
    return {
        model.name: ModelRules(model, times, hash_key, wording, offline=schema.from_file, carries=schema.carries)
        for model in schema.models
    }


def take_classes(schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
    """Set the classes that a schema has found in a file."""
    (model,) = schema.models
    rules[model.name].set_classes(model.classes or ())


class ModelRouter:
    """Finds the model of a record: the one it names, or the only one."""

    def __init__(self, rules: Mapping[str, ModelRules]) -> None:
        self._rules = rules
        self._only = next(iter(rules.values())) if len(rules) == 1 else None

    def find(self, value: object) -> ModelFormat | Reason:
        """Return the model that a record names, or the reason for its rejection."""
        if value is None:
            return Reason.MISSING_FIELD if self._only is None else self._only.model
        # Unknown names are never shown: they may be anything.
        rules = self._rules.get(text_of(value) or "")
        return Reason.UNKNOWN_MODEL if rules is None else rules.model

    def split(self, values: Values | str | None, count: int) -> Iterator[tuple[ModelFormat | Reason, Indices]]:
        """Yield the models, or reasons for rejection, with the rows of their records; all may name one model or none."""
        if values is None or isinstance(values, str):
            yield self.find(values), np.arange(count)
            return
        if values.count(values[0]) == count:
            yield self.find(values[0]), np.arange(count)
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


class ModelBatchBuilder:
    """Collects column blocks of one model and applies the rules to all of them at once."""

    def __init__(self, rules: ModelRules) -> None:
        self._rules = rules
        self._numbers: list[Indices] = []
        self._outputs: list[Floats] = []
        self._at: list[Floats] = []
        self._time_errors: list[Booleans] = []
        self._invalid_times: list[object] = []
        self._ids = IdColumn(rules.hash_key, rules.model.audited_ids)
        # Hashed like ids: a group may be a patient.
        self._groups = None if rules.model.group_by is None else IdColumn(rules.hash_key)
        self._hashed = [one for one in (self._ids, self._groups) if one is not None]
        self._versions = TextColumn()
        self._segments = tuple(TextColumn() for _ in rules.model.segment_fields)
        # Where records decide, a missing column is a missing value of each.
        self._predicted: list[object] | None = [] if rules.model.decided_by_record else None
        self._labels: Labels | None = None

    def add(self, block: ColumnBlock, outputs: Floats) -> None:
        """Add a column block."""
        count = len(block.numbers)
        self._numbers.append(block.numbers)
        self._outputs.append(outputs)
        at, wrong = self._rules.times.read(block.times, count)
        self._at.append(at)
        self._time_errors.append(wrong)
        if block.times is not None and wrong.any():
            invalid = _some(block.times, np.flatnonzero(wrong))
            self._invalid_times.extend(invalid.tolist() if isinstance(invalid, np.ndarray) else invalid)
        self._ids.add(block.ids, count)
        if self._groups is not None:
            self._groups.add(block.groups, count)
        self._versions.add(block.versions, count)
        for column, values in zip(self._segments, block.segments, strict=True):
            column.add(values, count)
        if block.predicted is not None:
            self._predicted = [*(self._predicted or ()), *block.predicted]
        elif self._predicted is not None:
            self._predicted.extend([UNSET] * count)
        if block.labels is not None:
            self._labels = block.labels if self._labels is None else [*self._labels, *block.labels]

    def build(self) -> tuple[Records | None, list[tuple[int, Reason | RejectionProblem]]]:
        """Return the accepted records, if any, and the row and reason of each rejected one; offline, explain the first few."""
        rules = self._rules
        outputs = np.concatenate(self._outputs)
        latest = outputs[-RECENT:].copy()
        checked = check_vectors(outputs, rules.model.kind, spend=not rules.offline)
        codes = checked.codes.copy()
        labels = rules.check_labels(self._labels, codes, outputs.shape[1])
        mark(codes, np.concatenate(self._time_errors), Reason.BAD_TIMESTAMP)
        for column in self._segments:
            if (wrong := column.invalid_segments()) is not None:
                mark(codes, wrong, Reason.BAD_SEGMENT)
        if (wrong := self._versions.invalid_texts()) is not None:
            mark(codes, wrong, Reason.WRONG_TYPE)
        self._check_ids(codes)
        decided, before = None, codes
        if rules.model.decided_by_record:
            before = codes.copy()
            decided = rules.check_decisions(self._predicted or (), codes, checked.probabilities.shape[1])
        rules.note(outputs, latest, checked, self._invalid_times)
        if not codes.any():
            return self._accepted(checked, labels, decided, None), []
        kept = np.flatnonzero(codes == ACCEPTED)
        numbers = np.concatenate(self._numbers)
        rejected: list[tuple[int, Reason | RejectionProblem]] = []
        for row in np.flatnonzero(codes).tolist():
            reason = reason_of(int(codes[row]))
            explained = rules.offline and len(rejected) < DETAILS
            of_label = checked.codes[row] == ACCEPTED
            problem: Reason | RejectionProblem = reason
            if before[row] == ACCEPTED:
                problem = self._problem_of_decision(row, explained=explained)
            elif explained:
                problem = self._problem(row, reason, outputs, of_label=of_label)
            rejected.append((int(numbers[row]), problem))
        return self._accepted(checked, labels, decided, kept) if len(kept) else None, rejected

    def _check_ids(self, codes: Codes) -> None:
        """Set the code of rows with an invalid id or group, or with a label and no id."""
        if wrong_rows := [row for hashed in self._hashed for row in hashed.wrong]:
            mark(codes, np.isin(np.arange(len(codes)), wrong_rows), Reason.WRONG_TYPE)
        if self._rules.of_labels:
            mark(codes, self._ids.hashes() == NO_ID, Reason.NO_ID)

    def _problem_of_decision(self, row: int, *, explained: bool) -> RejectionProblem:
        value = (self._predicted or ())[row]
        if value is UNSET:
            return NO_DECISION
        expected = f"a decision for one of the classes {listed(self._rules.model.classes or ())}, or null"
        # What was found is shown offline only.
        return RejectionProblem(Reason.UNKNOWN_CLASS, expected, preview(value) if explained else "another value")

    def _problem(self, row: int, reason: Reason, outputs: Floats, *, of_label: bool) -> Reason | RejectionProblem:
        if not of_label:
            return explain(outputs[row], reason, self._rules.model.kind)
        problem = None
        if self._labels is not None:
            problem = self._rules.label_rules(outputs.shape[1]).index(self._labels[row])
        return problem if isinstance(problem, RejectionProblem) else reason

    def _accepted(
        self, checked: CheckedVectors, labels: Indices | None, decided: Indices | None, kept: Indices | None
    ) -> Records:
        """Return the records of some rows; of all rows if `kept` is None."""
        names = self._rules.model.segment_fields
        vectors, at, normalised = checked.probabilities, np.concatenate(self._at), checked.normalised
        fields = {name: column.texts() for name, column in zip(names, self._segments, strict=True)}
        versions, ids, predicted = self._versions.texts(), self._ids.hashes(), self._predicted
        groups = None if self._groups is None else self._groups.hashes()
        if kept is not None:
            vectors, at, normalised = vectors[kept], at[kept], normalised[kept]
            fields = {name: compact(column, kept) for name, column in fields.items()}
            versions = compact(versions, kept)
            ids, predicted, labels = ids[kept], _some(predicted, kept), _some(labels, kept)
            decided, groups = _some(decided, kept), _some(groups, kept)
        return Records(
            vectors,
            at,
            fields,
            None if set(versions.values) <= {""} else versions,
            ids if (ids != NO_ID).any() else None,
            labels,
            int(np.count_nonzero(normalised)),
            0 if predicted is None or decided is not None else self._rules.mismatches(predicted, vectors),
            decided,
            groups,
            audited_ids=self._ids.kept,
        )


class BatchBuilder:
    """Builds a record batch from column blocks, and from records that the format's reader rejects."""

    def __init__(
        self,
        where: str,
        rules: Mapping[str, ModelRules],
        first_number: int,
        *,
        is_ascii: bool = False,
        explained: str | None = None,
    ) -> None:
        self.where = where
        self.rules = rules
        self.is_ascii = is_ascii
        self.ignored = 0
        self._first = first_number
        self._rejections = Rejections(explained)
        self._pending: dict[str, ModelBatchBuilder] = {}
        self._accepted: dict[str, list[Records]] = {}

    def add(self, model: str, columns: ColumnBlock, block: LineBlock | None = None) -> None:
        """Add a column block; it is checked when the block of lines ends."""
        outputs = columns.outputs
        if isinstance(outputs, Vectors):
            rows = self._fitting(self.rules[model], outputs, columns, block)
            if not len(rows):
                return
            outputs = outputs.taken(rows, self.rules[model].model.width)
            columns = columns.taken(rows, outputs)
        if model not in self._pending:
            self._pending[model] = ModelBatchBuilder(self.rules[model])
        self._pending[model].add(columns, outputs)

    def _fitting(self, rules: ModelRules, vectors: Vectors, columns: ColumnBlock, block: LineBlock | None) -> Indices:
        """Return the rows with vectors of the right length, and reject the others; find the classes if necessary."""
        rows: Indices = np.arange(len(columns.numbers))
        name, numbers, lengths = rules.model.name, columns.numbers, vectors.lengths
        if vectors.wrong is not None:
            self.reject_all(name, numbers[vectors.wrong].tolist(), NOT_A_NUMBER, block)
            rows = rows[~vectors.wrong]
        if not rules.model.width:
            rows = self._find_classes(rules, vectors, columns, rows, block)
        for length in np.unique(lengths[rows]).tolist():
            if (problem := rules.model.problem_of_length(length)) is not None:
                self.reject_all(name, numbers[rows[lengths[rows] == length]].tolist(), problem, block)
        fitting: Indices = rows[lengths[rows] == rules.model.width]
        return fitting

    def _find_classes(
        self, rules: ModelRules, vectors: Vectors, columns: ColumnBlock, rows: Indices, block: LineBlock | None
    ) -> Indices:
        """Take the number of classes from the first acceptable record; return the rows from there on.

        Records before it are not rejected for their length.
        """
        lengths, first = vectors.lengths, len(columns.numbers)
        possible = [
            length for length in np.unique(lengths[rows]).tolist() if rules.model.problem_of_length(length) is None
        ]
        for length in possible:
            some = rows[lengths[rows] == length]
            part = columns.taken(some, matrix := vectors.taken(some, length))
            codes = check_vectors(matrix, rules.model.kind).codes
            if part.labels is not None:
                mark_all(codes, rules.label_rules(length).indices(part.labels)[1])
            first = min([first, *some[codes == ACCEPTED][:1].tolist()])
        before = rows[rows < first]
        for length in possible:
            some = before[lengths[before] == length]
            if len(some):
                one = ModelBatchBuilder(rules)
                one.add(columns.taken(some, matrix := vectors.taken(some, length)), matrix)
                for number, problem in one.build()[1]:
                    self.reject(rules.model.name, number, problem, block)
        for length in sorted(set(lengths[before].tolist()) - set(possible)):
            numbers = columns.numbers[before[lengths[before] == length]].tolist()
            too_long_or_short = rules.model.problem_of_length(length) or Reason.WRONG_K
            self.reject_all(rules.model.name, numbers, too_long_or_short, block)
        if first < len(columns.numbers):
            rules.set_classes(numbered(int(lengths[first])))
        return rows[rows >= first]

    def reject(
        self, model: str, index: int, problem: Reason | RejectionProblem, block: LineBlock | None = None
    ) -> None:
        """Reject the record at an index of a block of lines, or at a row."""
        if isinstance(problem, RejectionProblem):
            reason, expected = problem.reason, problem.expected
        else:
            reason, expected = problem, (self.rules[model].expected if model else EXPECTED)[problem]
        if block is None:
            rejected = RejectedRecord(self._first + index, reason, expected=expected)
        else:
            start, end = block.bounds(index)
            number = self._first + block.first + index
            rejected = RejectedRecord(number, reason, block.start + start, block.start + end, expected)
        self._rejections.add(model, rejected, problem)

    def reject_all(
        self, model: str, indexes: Sequence[int], problem: Reason | RejectionProblem, block: LineBlock | None = None
    ) -> None:
        """Reject the records at several ascending indexes."""
        reason = problem.reason if isinstance(problem, RejectionProblem) else problem
        self._rejections.count(model, reason, len(indexes) - MOST_POINTERS)
        # Offline the first ones are explained, in a stream the last ones are located.
        some = indexes[:MOST_POINTERS] if self._rejections.unit is not None else indexes[-MOST_POINTERS:]
        for index in some:
            self.reject(model, index, problem, block)

    def end_block(self, block: LineBlock | None = None) -> None:
        """Check the records added since the last block."""
        for name, pending in self._pending.items():
            accepted, rejected = pending.build()
            if accepted is not None:
                self._accepted.setdefault(name, []).append(accepted)
            alike: dict[Reason | RejectionProblem, list[int]] = {}
            for index, problem in rejected:
                alike.setdefault(problem, []).append(index)
            for problem, indexes in alike.items():
                self.reject_all(name, sorted(indexes), problem, block)
        self._pending = {}

    def finish(self, rows: int, pointers: Callable[[], PointerTo], non_json_lines: int | None = None) -> RecordBatch:
        """Return the record batch; `pointers` is called if a record was rejected."""
        rejected = self._rejections.last()
        hints = {name: rules.recent.hints() for name, rules in self.rules.items()}
        return RecordBatch(
            {name: Records.joined(all_) if len(all_) > 1 else all_[0] for name, all_ in self._accepted.items()},
            self._rejections.counts,
            tuple(map(pointers(), rejected)) if rejected else (),
            self.ignored,
            rows,
            non_json_lines,
            {name: found for name, found in hints.items() if found},
            self._rejections.numbered_first,
        )


BATCH_ROWS = 8_192
_BATCH_NUMBERS = 1 << 19
"""Numbers in all rows of a batch: 4 MiB of floats."""


def rows_per_batch(width: int) -> int:
    """Return how many rows of a given width make a batch."""
    return max(1, min(BATCH_ROWS, _BATCH_NUMBERS // max(1, width)))


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of some rows; None for an absent column."""

    count: int
    outputs: Mapping[str, Vectors]
    """By model; a model without outputs in the file is missing. Empty for labels."""
    models: Values | None = None
    times: Values | None = None
    ids: Values | None = None
    versions: Values | None = None
    predicted: Values | None = None
    segments: Mapping[str, Values | None] = field(default_factory=dict)
    """By field name: segments and groups."""
    labels: Labels | None = None


class RowFiles:
    """Builds record batches from rows of column files."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        self._router = ModelRouter(rules)
        self._rules = rules
        self._explained = "row" if schema.from_file else None
        self._of_labels = schema.carries is Carries.LABELS

    def batch(self, where: str, first: int, columns: RowColumns) -> RecordBatch:
        """Return the batch of some rows; `first` is the number of the first row in the file, from 1."""
        builder = BatchBuilder(where, self._rules, first, explained=self._explained)
        for model, rows in self._router.split(columns.models, columns.count):
            if isinstance(model, Reason):
                builder.reject_all("", rows.tolist(), model)
                continue
            outputs = np.zeros((columns.count, 0)) if self._of_labels else columns.outputs.get(model.name)
            if outputs is None:
                builder.reject_all(model.name, rows.tolist(), NO_OUTPUTS)
            else:
                builder.add(model.name, _block(model, rows, columns, outputs))
        builder.end_block()
        return builder.finish(columns.count, lambda: bare_pointer)


def _block(model: ModelFormat, rows: Indices, columns: RowColumns, outputs: Floats | Vectors) -> ColumnBlock:
    segments = tuple(columns.segments.get(name) for name in model.segment_fields)
    whole = ColumnBlock(
        np.arange(columns.count),
        outputs,
        columns.times,
        columns.ids,
        columns.versions,
        columns.predicted,
        segments,
        columns.labels,
        None if model.group_by is None else columns.segments.get(model.group_by),
    )
    return whole if len(rows) == columns.count else whole.taken(rows, _some(outputs, rows))
