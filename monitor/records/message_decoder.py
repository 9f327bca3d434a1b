"""Decodes Kafka messages of one or more records."""

from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from monitor.core.record_columns import Records
from monitor.records.batch_builder import BatchBuilder, ColumnBlock, ModelRouter, ModelRules
from monitor.records.formats.json_problems import find, is_absent, read_line
from monitor.records.formats.json_struct import DECODE_ERRORS
from monitor.records.formats.jsonl import JsonLines
from monitor.records.formats.text import BLOCK_BYTES, LineBlock, line_blocks
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.labels import Indices
from monitor.records.message_forms import PACKED, MessageForms, Text, may_name, packed_paths
from monitor.records.pointers import MessagePointers, PointerRules, RecordShape
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields, check_formats
from monitor.records.rejections import Reason
from monitor.records.times import LATEST, TimeRules
from monitor.records.vectors import Floats


class MessageBatchBuilder(BatchBuilder):
    """A batch builder that numbers records across messages."""

    def __init__(self, where: str, rules: Mapping[str, ModelRules]) -> None:
        super().__init__(where, rules, first_number=0)
        self.first = 0
        """The number of the first record of the current text."""
        self._taken: dict[str, list[Indices]] = {}
        self._rejected: dict[str, list[int]] = {}

    def add(self, model: str, columns: ColumnBlock) -> None:
        """Add a column block, numbered within its text."""
        numbers = columns.numbers + self.first
        self._taken.setdefault(model, []).append(numbers)
        super().add(model, replace(columns, numbers=numbers))

    def reject(self, model: str, index: int, reason: Reason, block: LineBlock | None = None) -> None:
        """Reject the record at an index of the current text, or by its number."""
        number = index if block is None else self.first + index
        self._rejected.setdefault(model, []).append(number)
        super().reject(model, number, reason)

    def timed(self, batch: RecordBatch, ends: Indices, times: Floats) -> RecordBatch:
        """Set missing times to that of the message; `ends` are the numbers after each message's last record."""
        # Invalid message times are ignored: the record is not at fault.
        usable = np.where((times >= 0.0) & (times <= LATEST), times, np.nan)
        models = {name: self._timed(name, one, ends, usable) for name, one in batch.models.items()}
        return replace(batch, models=models)

    def _timed(self, model: str, accepted: Records, ends: Indices, times: Floats) -> Records:
        absent = np.isnan(accepted.at)
        if not absent.any():
            return accepted
        numbers = np.concatenate(self._taken[model])
        if model in self._rejected:
            numbers = numbers[~np.isin(numbers, self._rejected[model])]
        at = accepted.at.copy()
        at[absent] = times[np.searchsorted(ends, numbers[absent], side="right")]
        return replace(accepted, at=at)


_NUMBER_BYTES = 4
_ENDS = PACKED.encode() + b'"'

_decode = msgspec.json.Decoder().decode


def may_be_packed(text: bytes) -> bool:
    """Return whether a text may contain packed numbers."""
    return may_name(text, _ENDS)


@dataclass(slots=True)
class _Waiting:
    """Packed records of one model, not yet added to the batch."""

    numbers: list[range] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    columns: tuple[list[object], ...] = ()


class PackedRecords:
    """Decodes objects with packed numbers: base64 of little-endian float32, one record or many."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        self._router = ModelRouter(models)
        self._model = fields.path("model")
        self._packed_anywhere = {path for model in models for path in packed_paths(fields, model)}
        self._packed = {model.name: packed_paths(fields, model) for model in models}
        self._outputs = {path for model in models for path in fields.output_paths(model)}
        self._has_predicted = fields.predicted is not None
        single = [fields.path(name) for name in ("time", "id", "version")]
        single += [fields.path("predicted")] if self._has_predicted else []
        self._columns = {
            model.name: (*single, *(fields.segment_path(name) for name in model.segment_fields)) for model in models
        }
        self._widths = {model.name: model.width for model in models}
        self._waiting: dict[str, _Waiting] = {}

    def read(self, text: Text) -> dict[str, object] | None:
        """Return an object with packed numbers and no other outputs; None for anything else."""
        line = bytes(text)
        if not (line.startswith(b"{") and may_be_packed(line)):
            return None
        value: object
        try:
            value = _decode(line)
        except DECODE_ERRORS:
            value = read_line(line)
        if not isinstance(value, dict) or any(not is_absent(find(value, path)) for path in self._outputs):
            return None
        return value if any(not is_absent(find(value, path)) for path in self._packed_anywhere) else None

    def add(self, value: dict[str, object], number: int, builder: MessageBatchBuilder) -> int:
        """Add the records of an object, the first with this number; return their count, 1 if it is rejected."""
        named = find(value, self._model)
        model = self._router.find(None if is_absent(named) else named)
        if isinstance(model, Reason):
            builder.reject("", number, model)
            return 1
        packed = self._unpacked(value, model)
        if isinstance(packed, Reason):
            builder.reject(model.name, number, packed)
            return 1
        count = len(packed) // (_NUMBER_BYTES * model.width)
        columns = [_column(find(value, path), count) for path in self._columns[model.name]]
        whole = [column for column in columns if column is not None]
        if len(whole) < len(columns):
            builder.reject(model.name, number, Reason.BAD_BATCH)
            return 1
        waiting = self._waiting.setdefault(model.name, _Waiting(columns=tuple([] for _ in columns)))
        waiting.numbers.append(range(number, number + count))
        waiting.packed.append(packed)
        for all_values, values in zip(waiting.columns, whole, strict=True):
            all_values.extend(values)
        return count

    def flush(self, builder: MessageBatchBuilder) -> None:
        """Add the collected records to the batch."""
        builder.first = 0
        for name, waiting in self._waiting.items():
            numbers = np.concatenate([np.arange(some.start, some.stop) for some in waiting.numbers])
            times, ids, versions, *others = waiting.columns
            predicted = others.pop(0) if self._has_predicted else None
            matrix = _matrix(b"".join(waiting.packed), self._widths[name])
            builder.add(name, ColumnBlock(numbers, matrix, times, ids, versions, predicted, tuple(others)))
        self._waiting = {}

    def _unpacked(self, value: dict[str, object], model: ModelFormat) -> bytes | Reason:
        found = [find(value, path) for path in self._packed[model.name]]
        if not found or is_absent(found[0]):
            return Reason.MISSING_FIELD
        if not isinstance(found[0], str):
            return Reason.WRONG_TYPE
        try:
            packed = a2b_base64(found[0], strict_mode=True)
        except ValueError:
            return Reason.BAD_BASE64
        if not packed:
            return Reason.EMPTY
        return Reason.WRONG_K if len(packed) % (_NUMBER_BYTES * model.width) else packed


def _column(value: object, count: int) -> list[object] | None:
    """Return one value per record, from a list or a single value; None if the length is wrong."""
    if isinstance(value, list):
        return value if len(value) == count else None
    return [None if is_absent(value) else value] * count


def _matrix(packed: bytes, width: int) -> Floats:
    with np.errstate(all="ignore"):  # signalling NaNs
        return np.frombuffer(packed, "<f4").reshape(-1, width).astype(np.float64)


_OPEN = ord("{")


class MessageLines(JsonLines):
    """Decodes texts with one record each."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        super().__init__(models, fields)
        # Then the typed decoder rejects messages of other forms.
        self._all_have_outputs = len({fields.output_paths(model) for model in models}) == 1

    def decode_plain(self, messages: Sequence[bytes], first: int, builder: MessageBatchBuilder) -> bool:
        """Decode messages that are one object on one line each; return False, without effect, for other forms."""
        if not messages[0].startswith(b"{") or _looks_other(messages[0]):
            return False
        text = b"\n".join((*messages, b""))
        if not self._all_have_outputs and _looks_other(text):
            return False
        blocks = list(line_blocks(text))
        if len(blocks) != 1 or len(blocks[0]) != len(messages):
            return False
        (block,) = blocks
        builder.is_ascii = text.isascii()
        builder.first = first
        together = self._decode_together(block, 0, len(block), builder) if block.braced().all() else None
        if together is not None:
            self._route(np.arange(len(block)), together, block, builder)
            return True
        # A bad record: no need to try other forms if there can be none.
        if not (np.frombuffer(block.text, np.uint8)[block.starts] == _OPEN).all() or _looks_other(text):
            return False
        self._diagnoses.clear()
        self._decode_one_by_one(range(len(block)), block, builder, None)
        return True

    def decode_texts(self, texts: Sequence[Text], first: int, builder: MessageBatchBuilder) -> None:
        """Decode texts without newlines."""
        text = b"\n".join((*texts, b""))
        builder.is_ascii = text.isascii()
        for block in line_blocks(text):
            builder.first = first + block.first
            self.decode(block, builder, None)  # a topic is never rejected as a whole


def _looks_other(text: bytes) -> bool:
    """Return whether a text may be of another form: nested or packed records."""
    return may_name(text, b'"records"') or may_be_packed(text)


MAX_MESSAGE_BYTES = 8 << 20

# Decoded objects of this size stay in the CPU cache until they become columns.
_TOGETHER_BYTES = 3 << 15


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one partition in offset order, without tombstones."""

    values: Sequence[bytes]
    offsets: Sequence[int]
    times: Floats
    """Message timestamps in Unix seconds; NaN if missing."""


class MessageDecoder:
    """Decodes messages with records of some models. Keeps only the latest records, for hints. Not thread-safe.

    `hash_key`, 16 bytes, hashes ids and rejected messages. Repeated ids are recognised only under the same key.
    """

    def __init__(
        self,
        models: Sequence[ModelFormat],
        fields: RecordFields | None = None,
        *,
        hash_key: bytes,
        keep_raw: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        wording: Wording = CONFIG_FILE,
    ) -> None:
        fields = RecordFields() if fields is None else fields
        check_formats(models, fields)
        times = TimeRules(fields.time_unit, fields.zone())
        self._rules = {model.name: ModelRules(model, times, hash_key, wording) for model in models}
        self._forms = MessageForms(models, fields, max_message_bytes)
        self._lines = MessageLines(models, fields)
        self._packed = PackedRecords(models, fields)
        self._pointers = PointerRules(hash_key, keep_raw, RecordShape(models, fields))
        self._max_bytes = max_message_bytes

    def decode(self, where: str, messages: Messages) -> RecordBatch:
        """Decode messages; never raises, whatever their content."""
        builder = MessageBatchBuilder(where, self._rules)
        counts: list[Indices] = []
        number = waiting = 0
        for some, size in _groups(messages.values):
            fits = size <= self._max_bytes or max(map(len, some)) <= self._max_bytes
            if fits and self._lines.decode_plain(some, number, builder):
                counts.append(np.ones(len(some), dtype=np.int64))
                number += len(some)
            else:
                each = self._decode_any_form(some, number, builder)
                counts.append(np.array(each, dtype=np.int64))
                number += sum(each)
            waiting += size
            if waiting >= BLOCK_BYTES:
                builder.end_block()
                waiting = 0
        builder.end_block()
        ends: Indices = np.cumsum(np.concatenate(counts)) if counts else np.zeros(0, dtype=np.int64)
        pointers = MessagePointers(self._pointers, messages.values, messages.offsets, ends, self._forms.texts)
        batch = builder.finish(number + builder.ignored, pointers)
        return builder.timed(batch, ends, messages.times)

    def _decode_any_form(self, values: Sequence[bytes], first: int, builder: MessageBatchBuilder) -> list[int]:
        """Decode messages of any form, the first record with this number; return the record count of each."""
        counts: list[int] = []
        lines: list[Text] = []
        number = first

        def flush_lines() -> None:
            if lines:
                self._lines.decode_texts(lines, number - len(lines), builder)
                lines.clear()

        for value in values:
            start = number
            texts = self._forms.texts(value)
            if isinstance(texts, Reason):
                flush_lines()
                builder.reject("", number, texts)
                number += 1
            elif not texts:
                builder.ignored += 1
            elif not may_be_packed(value):
                self._packed.flush(builder)
                lines.extend(texts)
                number += len(texts)
            else:
                for text in texts:
                    if (packed := self._packed.read(text)) is None:
                        self._packed.flush(builder)
                        lines.append(text)
                        number += 1
                    else:
                        flush_lines()
                        number += self._packed.add(packed, number, builder)
            counts.append(number - start)
        flush_lines()
        self._packed.flush(builder)
        return counts


def _groups(values: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Yield groups of consecutive messages to decode at once, with their size."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    first = before = 0
    while first < len(values):
        after = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER_BYTES, side="right")))
        end = int(ends[after - 1])
        yield values[first:after], end - before
        first, before = after, end
