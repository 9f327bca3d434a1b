"""The rules on records of a stream, whatever format carried them: candidates go in, columns of one model come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.core.segments import Records, Texts
from monitor.records.columns import IdColumn, TextColumn, Values, compact, join_texts
from monitor.records.hints import IN_A_FILE_OF_SETTINGS, Wording
from monitor.records.id_hash import hash_ids
from monitor.records.labels import NO_CLASS, Indices, LabelRules
from monitor.records.recent_hints import RECENT, Recent
from monitor.records.record_batch import NO_ID, Hashes, ModelRecords
from monitor.records.record_schema import ModelFormat
from monitor.records.rejections import Reason
from monitor.records.times import TimeRules
from monitor.records.vectors import ACCEPTED, Booleans, Floats, Judged, Singles, judge, mark, reason_of


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


@dataclass(slots=True)
class Gathered:
    """Accepted records of one model, block by block."""

    blocks: list[ModelRecords] = field(default_factory=list)

    def joined(self) -> ModelRecords | None:
        """Return all of them; None when there are none."""
        blocks = [block for block in self.blocks if len(block)]
        if len(blocks) < 2:
            return blocks[0] if blocks else None
        records = [block.records for block in blocks]
        has_ids = any(block.ids is not None for block in blocks)
        ids = [np.full(len(block), NO_ID, dtype=np.uint64) if block.ids is None else block.ids for block in blocks]
        has_versions = any(one.versions is not None for one in records)
        versions = [_no_texts(len(one.at)) if one.versions is None else one.versions for one in records]
        return ModelRecords(
            Records(
                np.concatenate([one.vectors for one in records]),
                np.concatenate([one.at for one in records]),
                {name: join_texts([one.fields[name] for one in records]) for name in records[0].fields},
                join_texts(versions) if has_versions else None,
            ),
            np.concatenate(ids) if has_ids else None,
            sum(block.normalised for block in blocks),
            sum(block.argmax_mismatches for block in blocks),
        )


def _no_texts(count: int) -> Texts:
    return Texts(("",), np.zeros(count, dtype=np.int64))
