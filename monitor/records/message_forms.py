"""The forms of a message: one record, an array, an object with records, or lines.

The fast path rejects NaN and Infinity, which Python writes into JSON. The slow path accepts them, so that one such
number does not reject the other records of the message.

An object with outputs is a record; only an object without outputs may contain records.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from monitor.records.formats.json_problems import find, is_absent
from monitor.records.formats.json_struct import DECODE_ERRORS
from monitor.records.record_schema import FieldPath, ModelFormat, RecordFields
from monitor.records.rejections import Reason

Text = bytes | msgspec.Raw
"""The JSON text of one value."""

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


def packed_paths(fields: RecordFields, model: ModelFormat) -> tuple[FieldPath, ...]:
    """Return the paths of packed outputs; none with class columns."""
    if fields.class_columns is not None:
        return ()
    ((*above, last),) = fields.output_paths(model)
    return ((*above, last + PACKED),)


class MessageForms:
    """Splits messages into JSON texts without newlines."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._outputs = {path for model in models for path in fields.output_paths(model)}
        self._outputs |= {path for model in models for path in packed_paths(fields, model)}
        # Not the id: one beside the records is that of the message.
        paths = {fields.path(name) for name in ("model", "version", "time")}
        paths |= {fields.segment_path(name) for model in models for name in model.segment_fields}
        apart = {path[0] for path in self._outputs} | {fields.path("id")[0], RECORDS}
        self._shared = tuple(sorted({path[0] for path in paths} - apart))
        self._members = Members([RECORDS, *self._shared, *(path[0] for path in self._outputs)])

    def texts(self, message: bytes) -> Sequence[Text] | Reason:
        """Return the texts of a message's records, or why the whole message is rejected.

        Invalid JSON is one text, which the rules on records reject.
        """
        if len(message) > self._max_bytes:
            return Reason.TOO_LARGE
        text = message.removeprefix(_UTF8_MARK).strip(_WHITESPACE)
        if not text:
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
            if not (stripped := line.strip(_WHITESPACE)):
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
