"""Kafka messages: their forms, and the records in them.

A message is one record, an array, an object with records, or lines; each record becomes a text for the reader of JSON Lines.
The fast path rejects NaN and Infinity, which Python writes into JSON. The slow path accepts them, so that one such
number does not reject the other records of the message.

An object with outputs or a label is a record; only an object without may contain records.
"""

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest
from typing import Any

import msgspec
import numpy as np

from monitor.core.record_columns import Records
from monitor.records.batch_builder import NO_OUTPUTS, BatchBuilder, ColumnBlock, ModelRouter, ModelRules
from monitor.records.columns import LATEST
from monitor.records.formats.json_problems import DECODE_ERRORS, find, is_absent, read_line, shown_json
from monitor.records.formats.jsonl import EncodedRecords, JsonLines
from monitor.records.formats.text import BLOCK_BYTES, LineBlock, line_blocks
from monitor.records.pointers import MessagePointers, PointerRules, Text
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import FieldPath, ModelFormat, RecordSchema
from monitor.records.rejections import MOST_POINTERS, Reason, RejectionProblem
from monitor.records.vectors import Floats, Indices

MOST_ITEMS = 1 << 18
"""The limit on items of one array."""

_AT_ONCE_BYTES = 2 << 20
_AT_ONCE_COMMAS = 1 << 20
"""Limits of splitting an array at once, which creates an object per item."""

_items_at_once = msgspec.json.Decoder(list[msgspec.Raw]).decode

_SPACE = re.compile(r"[ \t\r\n]*")

# Numbers are skipped, not parsed.
_pass_over = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len).raw_decode


class NotJson(ValueError):
    """A text that is not the expected array or object."""


def items_of(text: bytes) -> Sequence[Text]:
    """Return the items of an array, at most MOST_ITEMS + 1; raises NotJson."""
    if len(text) <= _AT_ONCE_BYTES or text.count(b",") <= _AT_ONCE_COMMAS:
        try:
            return _items_at_once(text)
        except DECODE_ERRORS:
            pass
    return [item.encode() for _, item in zip(range(MOST_ITEMS + 1), _each_item(_decoded(text)), strict=False)]


class Members:
    """Finds members of objects by name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {f"member_{place}": name for place, name in enumerate(dict.fromkeys(names))}
        nothing = msgspec.Raw()
        fields: list[tuple[str, Any, Any]] = [(own, msgspec.Raw, nothing) for own in self._names]
        struct = msgspec.defstruct("Members", fields, rename=self._names, gc=False)
        self._at_once: Callable[[bytes], Any] = msgspec.json.Decoder(struct).decode

    def of(self, text: bytes) -> dict[str, bytes]:
        """Return the members that exist; raises NotJson. Of duplicate names the last counts."""
        try:
            found = msgspec.structs.asdict(self._at_once(text))
        except DECODE_ERRORS:
            wanted = set(self._names.values())
            return {name: value.encode() for name, value in _each_member(_decoded(text)) if name in wanted}
        return {self._names[own]: bytes(value) for own, value in found.items() if len(value)}


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise NotJson from None


def _each_item(text: str) -> Iterator[str]:
    """Yield the items of an array."""
    place = _after(text, 0, "[")
    if text[place : place + 1] == "]":
        _expect_end(text, place + 1)
        return
    while True:
        end = _end_of_value(text, place)
        yield text[place:end]
        place = _after_space(text, end)
        if text[place : place + 1] == "]":
            _expect_end(text, place + 1)
            return
        place = _after(text, place, ",")


def _each_member(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an object."""
    place = _after(text, 0, "{")
    if text[place : place + 1] == "}":
        _expect_end(text, place + 1)
        return
    while True:
        end = _end_of_value(text, place)
        name = json.loads(text[place:end]) if text[place] == '"' else None
        if not isinstance(name, str):
            raise NotJson
        place = _after(text, _after_space(text, end), ":")
        end = _end_of_value(text, place)
        yield name, text[place:end]
        place = _after_space(text, end)
        if text[place : place + 1] == "}":
            _expect_end(text, place + 1)
            return
        place = _after(text, place, ",")


def _end_of_value(text: str, place: int) -> int:
    try:
        return _pass_over(text, place)[1]
    except DECODE_ERRORS:
        raise NotJson from None


def _after(text: str, place: int, sign: str) -> int:
    """Return the position after a character and whitespace."""
    if not text.startswith(sign, place):
        raise NotJson
    return _after_space(text, place + 1)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _expect_end(text: str, place: int) -> None:
    if place != len(text):
        raise NotJson


RECORDS = "records"
"""The key of nested records."""

PACKED = "_f32"
"""The suffix of a field with packed outputs, after the name of the output field."""

MOST_REPEATED_BYTES = 32 << 20
"""The limit on shared fields once copied into each record."""

_UTF8_MARK = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\r\n"

# Never within one JSON value: separates two objects.
_BETWEEN_LINES = re.compile(rb"\}[ \t\r]*\n[ \t\r\n]*\{")


def packed_paths(schema: RecordSchema, model: ModelFormat) -> tuple[FieldPath, ...]:
    """Return the paths of packed outputs; none with class columns."""
    if schema.fields.class_columns is not None:
        return ()
    return tuple((*above, last + PACKED) for *above, last in schema.output_paths(model))


class MessageForms:
    """Splits messages into JSON texts without newlines."""

    def __init__(self, schema: RecordSchema, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        models, single = schema.models, schema.single_paths()
        self._outputs = {path for model in models for path in schema.output_paths(model)}
        self._outputs |= {path for model in models for path in packed_paths(schema, model)}
        self._outputs |= {path for name, path in single.items() if name == "label"}
        # Not the id: one beside the records is that of the message.
        paths = {path for name, path in single.items() if name in {"model", "version", "time"}}
        paths |= set(map(schema.fields.segment_path, schema.named_fields()))
        apart = {path[0] for path in self._outputs} | {single[name][0] for name in single if name == "id"} | {RECORDS}
        self._shared = tuple(sorted({path[0] for path in paths} - apart))
        self._members = Members([RECORDS, *self._shared, *(path[0] for path in self._outputs)])

    def texts(self, message: bytes) -> Sequence[Text] | Reason:
        """Return the texts of a message's records, or why the whole message is rejected.

        Invalid JSON is one text, which the rules on records reject.
        """
        if len(message) > self._max_bytes:
            return Reason.TOO_LARGE
        text = message.removeprefix(_UTF8_MARK).strip(_WHITESPACE)
        # Also other white space: a reader of lines skips such a line, but a message is never skipped.
        if not text or text.isspace():
            return Reason.EMPTY
        if b"\n" in text:
            if text.startswith(b"{") and _BETWEEN_LINES.search(text):
                return self._of_lines(text)
            # Both are whitespace in JSON, but \r does not end a line.
            text = text.replace(b"\n", b"\r")
        return _items(text) if text.startswith(b"[") else self._of_object(text)

    def _of_lines(self, text: bytes) -> Sequence[Text] | Reason:
        texts: list[Text] = []
        for line in text.split(b"\n"):
            if not (stripped := line.strip(_WHITESPACE)) or stripped.isspace():
                continue
            some = self._of_object(stripped)
            if isinstance(some, Reason) or len(texts) + len(some) > MOST_ITEMS:
                return Reason.TOO_LARGE
            texts.extend(some)
        return texts

    def _of_object(self, text: bytes) -> Sequence[Text] | Reason:
        if not may_name(text, b'"records"'):
            return [text]
        try:
            members = self._members.of(text)
        except NotJson:
            return [text]
        inside = members.get(RECORDS, b"")
        if not inside.startswith(b"[") or self._has_outputs(members):
            return [text]
        items = _items(inside)
        shared = [name for name in self._shared if name in members]
        if isinstance(items, Reason) or not shared:
            return items
        # Before the record's own fields: of duplicate names the last counts.
        start = b"{" + b"".join(msgspec.json.encode(name) + b":" + members[name] + b"," for name in shared)
        if len(start) * len(items) > MOST_REPEATED_BYTES:
            return Reason.TOO_LARGE
        return [_begun(start, bytes(item)) for item in items]

    def _has_outputs(self, members: dict[str, bytes]) -> bool:
        return any(_has(members, path) for path in self._outputs)


def may_name(text: bytes, quoted: bytes) -> bool:
    """Return whether an object may have a member of this name, possibly escaped."""
    return quoted in text or (b"\\" in text and b"\\u" in text)


def _items(text: bytes) -> Sequence[Text] | Reason:
    try:
        items = items_of(text)
    except NotJson:
        return [text]
    return Reason.TOO_LARGE if len(items) > MOST_ITEMS else items


def _begun(start: bytes, record: bytes) -> bytes:
    if not record.startswith(b"{"):
        return record
    rest = record[1:].lstrip(_WHITESPACE)
    return (start[:-1] if rest.startswith(b"}") else start) + rest


def _has(members: dict[str, bytes], path: FieldPath) -> bool:
    if path[0] not in members:
        return False
    if len(path) == 1:
        return True
    try:
        return not is_absent(find({path[0]: msgspec.json.decode(members[path[0]])}, path))
    except DECODE_ERRORS:
        return True


class MessageBatchBuilder(BatchBuilder):
    """A batch builder that numbers records across messages."""

    def __init__(self, where: str, rules: Mapping[str, ModelRules]) -> None:
        super().__init__(where, rules, first_number=0)
        self.first = 0
        """The number of the first record of the current text."""
        self._taken: dict[str, list[Indices]] = {}
        self._rejected: dict[str, list[int]] = {}

    def add(self, model: str, columns: ColumnBlock, block: LineBlock | None = None) -> None:
        """Add a column block, numbered within its text."""
        numbers = columns.numbers + self.first
        self._taken.setdefault(model, []).append(numbers)
        super().add(model, replace(columns, numbers=numbers), block)

    def reject(
        self, model: str, index: int, problem: Reason | RejectionProblem, block: LineBlock | None = None
    ) -> None:
        """Reject the record at an index of the current text, or by its number."""
        number = index if block is None else self.first + index
        self._rejected.setdefault(model, []).append(number)
        super().reject(model, number, problem)

    def reject_all(
        self, model: str, indexes: Sequence[int], problem: Reason | RejectionProblem, block: LineBlock | None = None
    ) -> None:
        """Reject the records at several ascending indexes."""
        # Only the last ones are rejected one by one.
        first = 0 if block is None else self.first
        self._rejected.setdefault(model, []).extend(first + index for index in indexes[:-MOST_POINTERS])
        super().reject_all(model, indexes, problem, block)

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
_BASE64 = "float32 numbers in base64"

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

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        models, single = schema.models, schema.single_paths()
        self._router = ModelRouter(rules)
        self._model = single.get("model", ())
        self._packed_anywhere = {path for model in models for path in packed_paths(schema, model)}
        self._packed = {model.name: packed_paths(schema, model) for model in models}
        self._outputs = {path for model in models for path in schema.output_paths(model)}
        self._names = [name for name in ("time", "id", "version", "predicted") if name in single]
        self._segments = {model.name: schema.segment_paths(model) for model in models}
        self._columns = {
            model.name: (*(single[name] for name in self._names), *self._segments[model.name], *_group(schema, model))
            for model in models
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
        named = find(value, self._model) if self._model else None
        model = self._router.find(None if is_absent(named) else named)
        if isinstance(model, Reason):
            builder.reject("", number, model)
            return 1
        packed = self._unpacked(value, model)
        if isinstance(packed, RejectionProblem):
            builder.reject(model.name, number, packed)
            return 1
        count = len(packed) // (_NUMBER_BYTES * model.width)
        missing = [msgspec.UNSET if name == "predicted" else None for name in self._names]
        columns = [
            _column(find(value, path), count, absent)
            for path, absent in zip_longest(self._columns[model.name], missing)
        ]
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
            single = dict(zip(self._names, waiting.columns, strict=False))
            named, segments = waiting.columns[len(self._names) :], len(self._segments[name])
            columns = ColumnBlock(
                numbers,
                _matrix(b"".join(waiting.packed), self._widths[name]),
                single.get("time"),
                single.get("id"),
                single.get("version"),
                single.get("predicted"),
                named[:segments],
                groups=named[segments] if len(named) > segments else None,
            )
            builder.add(name, columns)
        self._waiting = {}

    def _unpacked(self, value: dict[str, object], model: ModelFormat) -> bytes | RejectionProblem:
        found = [find(value, path) for path in self._packed[model.name]]
        if not found or is_absent(found[0]):
            return NO_OUTPUTS
        if not isinstance(found[0], str):
            return RejectionProblem(Reason.WRONG_TYPE, _BASE64, shown_json(found[0]))
        try:
            packed = a2b_base64(found[0], strict_mode=True)
        except ValueError:
            return RejectionProblem(Reason.BAD_BASE64, _BASE64, "another string")
        if not packed:
            return RejectionProblem(Reason.EMPTY, "one number per class", "an empty string")
        if len(packed) % (_NUMBER_BYTES * model.width):
            return RejectionProblem(Reason.WRONG_K, f"vectors of {model.width}", f"{len(packed)} bytes")
        return packed


def _group(schema: RecordSchema, model: ModelFormat) -> tuple[FieldPath, ...]:
    path = schema.group_path(model)
    return () if path is None else (path,)


def _column(value: object, count: int, absent: object) -> list[object] | None:
    """Return one value per record, from a list or a single value; None if the length is wrong."""
    if isinstance(value, list):
        return value if len(value) == count else None
    return [absent if is_absent(value) else value] * count


def _matrix(packed: bytes, width: int) -> Floats:
    with np.errstate(all="ignore"):  # signalling NaNs
        return np.frombuffer(packed, "<f4").reshape(-1, width).astype(np.float64)


_OPEN = ord("{")


class PlainMessages:
    """Decodes messages and texts with one record each, and arrays of records."""

    def __init__(self, schema: RecordSchema, lines: JsonLines) -> None:
        self._lines = lines
        # Then the typed decoder rejects messages of other forms.
        self._all_have_outputs = len({schema.output_paths(model) for model in schema.models}) == 1

    def decode_array(self, message: bytes) -> list[Any] | None:
        """Return the records of an array; None if one is invalid, there are none, or the message is of another form."""
        # Longer ones are split, so as not to hold all their records.
        if not self._all_have_outputs or not message.startswith(b"[") or len(message) > BLOCK_BYTES:
            return None
        return self._lines.decode_array(message) or None

    def decode_objects(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the records of messages that are one object on one line each; None if any is not, or is invalid."""
        block = self._block(messages)
        return None if block is None else self._decode_block(block)

    def decode_plain(self, messages: Sequence[bytes], first: int, builder: MessageBatchBuilder) -> bool:
        """Decode messages that are one object on one line each; return False, without effect, for other forms."""
        block = self._block(messages)
        if block is None:
            return False
        builder.first = first
        records = self._decode_block(block)
        if records is not None:
            self._lines.add(np.arange(len(block)), records, block, builder)
            return True
        # A bad record: no need to try other forms if there can be none.
        is_open = np.frombuffer(block.text, np.uint8)[block.starts] == _OPEN
        if not is_open.all() or _looks_other(bytes(block.text)):
            return False
        self._lines.forget()
        self._lines.decode_one_by_one(range(len(block)), block, builder, None)
        return True

    def _block(self, messages: Sequence[bytes]) -> LineBlock | None:
        """Return messages as lines; None unless each can be one object on one line."""
        if not messages[0].startswith(b"{") or _looks_other(messages[0]):
            return None
        text = b"\n".join((*messages, b""))
        if not self._all_have_outputs and _looks_other(text):
            return None
        blocks = list(line_blocks(text))
        return blocks[0] if len(blocks) == 1 and len(blocks[0]) == len(messages) else None

    def _decode_block(self, block: LineBlock) -> list[Any] | None:
        if not block.braced().all():
            return None
        return self._lines.decode_together(block, 0, len(block), is_ascii=bytes(block.text).isascii())

    def decode_texts(self, texts: Sequence[Text], first: int, builder: MessageBatchBuilder) -> None:
        """Decode texts without newlines."""
        text = b"\n".join((*texts, b""))
        builder.is_ascii = text.isascii()
        for block in line_blocks(text):
            builder.first = first + block.first
            self._lines.decode(block, builder, None)  # a topic is never rejected as a whole


def _looks_other(text: bytes) -> bool:
    """Return whether a text may be of another form: nested or packed records."""
    return may_name(text, b'"records"') or may_be_packed(text)


# Decoded objects of this size stay in the CPU cache until they become columns.
_TOGETHER_BYTES = 3 << 15

_CHECKED_BYTES, _CHECKED_RECORDS = 4 << 20, 1 << 15
"""Messages or records that are checked at once: a fetch of a partition, to spread the cost of each step."""

_RECORD_BYTES = 128
"""About the size of a small record."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one partition in offset order, without tombstones."""

    values: Sequence[bytes]
    offsets: Sequence[int]
    times: Floats
    """Message timestamps in Unix seconds; NaN if missing."""


@dataclass(slots=True)
class _Run:
    """Groups of messages whose records are added to the batch at once."""

    records: EncodedRecords
    groups: list[Sequence[bytes]] = field(default_factory=list)
    counts: list[Indices] = field(default_factory=list)
    """Records of each message."""

    def add(self, group: Sequence[bytes], plain: PlainMessages) -> bool:
        """Add a group; return False, without effect, unless all are valid records, or all arrays of valid records."""
        if not self.records.is_open:
            return False
        mark = self.records.mark()
        if group[0].startswith(b"["):
            # One at a time: their records are freed before the next ones are made, and stay in the CPU cache.
            counts: Sequence[int] | Indices = list(
                takewhile(bool, (self.records.add(plain.decode_array(message)) for message in group))
            )
        else:
            counts = np.ones(self.records.add(plain.decode_objects(group)), dtype=np.int64)
        if len(counts) < len(group):
            self.records.return_to(mark)
            return False
        self.groups.append(group)
        self.counts.append(np.asarray(counts))
        return True


class MessageFrames:
    """Splits messages into records for the reader of JSON Lines, and decodes packed ones."""

    def __init__(
        self,
        schema: RecordSchema,
        rules: Mapping[str, ModelRules],
        lines: JsonLines,
        pointers: PointerRules,
        max_message_bytes: int,
    ) -> None:
        self._rules = rules
        self._forms = MessageForms(schema, max_message_bytes)
        self._lines = lines
        self._plain = PlainMessages(schema, lines)
        self._packed = PackedRecords(schema, rules)
        self._pointers = pointers
        self._max_bytes = max_message_bytes

    def decode(self, where: str, messages: Messages) -> RecordBatch:
        """Decode messages; never raises, whatever their content."""
        builder = MessageBatchBuilder(where, self._rules)
        counts: list[Indices] = []
        sizes = np.fromiter(map(len, messages.values), np.int64, len(messages.values))
        expected = int(sizes.sum()) // _RECORD_BYTES
        run = _Run(self._lines.new_run(expected))
        number = waiting = 0

        def end_run() -> None:
            nonlocal number, run
            ended, run = run, _Run(self._lines.new_run(expected))
            builder.first = 0
            numbers = np.arange(number, number + ended.records.count)
            if len(numbers) and self._lines.add_run(numbers, ended.records, builder):
                counts.extend(ended.counts)
                number += len(numbers)
                return
            for some in ended.groups:
                decode_group(some, fits=True)

        def decode_group(some: Sequence[bytes], *, fits: bool) -> None:
            nonlocal number
            if fits and self._plain.decode_plain(some, number, builder):
                each = [1] * len(some)
            else:
                each = self._decode_any_form(some, number, builder)
            counts.append(np.array(each, dtype=np.int64))
            number += sum(each)

        for some, size in _groups(messages.values, sizes):
            fits = size <= self._max_bytes or max(map(len, some)) <= self._max_bytes
            if not fits or not run.add(some, self._plain):
                end_run()
                decode_group(some, fits=fits)
            waiting += size
            if waiting >= _CHECKED_BYTES or run.records.count >= _CHECKED_RECORDS:
                end_run()
                builder.end_block()
                waiting = 0
        end_run()
        builder.end_block()
        ends: Indices = np.cumsum(np.concatenate(counts)) if counts else np.zeros(0, dtype=np.int64)
        batch = builder.finish(
            number + builder.ignored,
            lambda: MessagePointers(self._pointers, messages.values, messages.offsets, ends, self._forms.texts),
        )
        return builder.timed(batch, ends, messages.times)

    def _decode_any_form(self, values: Sequence[bytes], first: int, builder: MessageBatchBuilder) -> list[int]:
        """Decode messages of any form, the first record with this number; return the record count of each."""
        counts: list[int] = []
        lines: list[Text] = []
        number = first

        def flush_lines() -> None:
            if lines:
                self._plain.decode_texts(lines, number - len(lines), builder)
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


def _groups(values: Sequence[bytes], sizes: Indices) -> Iterator[tuple[Sequence[bytes], int]]:
    """Yield groups of consecutive messages to decode at once, with their size."""
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(values):
        after = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER_BYTES, side="right")))
        end = int(ends[after - 1])
        yield values[first:after], end - before
        first, before = after, end
