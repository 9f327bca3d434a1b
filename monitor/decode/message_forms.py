"""The forms of a message: one record, an array, an object that holds records, or lines. All become texts of one record.

An object that has outputs is a record, whatever else it has. Only one without any may hold records.
"""

import re
from collections.abc import Sequence

import msgspec

from monitor.decode.field_paths import Path
from monitor.decode.json_learned import REFUSED
from monitor.decode.json_problems import find, is_absent
from monitor.decode.message_values import MOST_ITEMS, Members, NotJson, Text, items_of
from monitor.decode.record_format import ModelFormat, RecordFields
from monitor.decode.rejections import Reason

RECORDS = "records"
"""The member of an object that holds records."""

PACKED = "_f32"
"""How the name of a field ends that holds an output's numbers packed; before it stands the name of the output."""

MOST_REPEATED_BYTES = 32 << 20
"""What the fields that stand beside records may grow to, once written into each of them."""

_UTF8_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"

# No JSON has this inside: after a closing brace comes a comma, another closing sign, or nothing.
_BETWEEN_LINES = re.compile(rb"\}[ \t\r]*\n[ \t\r\n]*\{")


def packed_paths(fields: RecordFields, model: ModelFormat) -> tuple[Path, ...]:
    """Return where a record's numbers may stand packed: beside the vector; nowhere if each class has its own field."""
    if fields.class_columns is not None:
        return ()
    ((*above, last),) = fields.output_paths(model)
    return ((*above, last + PACKED),)


class MessageForms:
    """Takes messages apart. Texts have no newlines inside."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._outputs = {path for model in models for path in fields.output_paths(model)}
        self._outputs |= {path for model in models for path in packed_paths(fields, model)}
        # Never the id: one that stands beside records is that of the message, and none of theirs.
        paths = {fields.path(name) for name in ("model", "version", "time")}
        paths |= {fields.segment_path(name) for model in models for name in model.segment_fields}
        apart = {path[0] for path in self._outputs} | {fields.path("id")[0], RECORDS}
        self._shared = tuple(sorted({path[0] for path in paths} - apart))
        self._members = Members([RECORDS, *self._shared, *(path[0] for path in self._outputs)])

    def texts(self, message: bytes) -> Sequence[Text] | Reason:
        """Return the texts of a message's records, or why it is refused as a whole.

        What is no JSON is one text: the rules on records say what is wrong with it.
        """
        if len(message) > self._max_bytes:
            return Reason.TOO_LARGE
        text = message.removeprefix(_UTF8_MARK).strip(_SPACE)
        if not text:
            return Reason.EMPTY
        if b"\n" in text:
            if text.startswith(b"{") and _BETWEEN_LINES.search(text):
                return self._of_lines(text)
            # Both are white space between values and forbidden inside them; but this one ends no line.
            text = text.replace(b"\n", b"\r")
        return _items(text) if text.startswith(b"[") else self._of_object(text)

    def _of_lines(self, text: bytes) -> Sequence[Text] | Reason:
        texts: list[Text] = []
        for line in text.split(b"\n"):
            if not (stripped := line.strip(_SPACE)):
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
        # Before the record's own fields: of two with one name the last counts.
        start = b"{" + b"".join(msgspec.json.encode(name) + b":" + members[name] + b"," for name in shared)
        if len(start) * len(items) > MOST_REPEATED_BYTES:
            return Reason.TOO_LARGE
        return [_begun(start, bytes(item)) for item in items]

    def _has_outputs(self, members: dict[str, bytes]) -> bool:
        return any(_has(members, path) for path in self._outputs)


def may_name(text: bytes, quoted: bytes) -> bool:
    """Tell whether an object may have a member of this name; an escape may hide it."""
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
    rest = record[1:].lstrip(_SPACE)
    return (start[:-1] if rest.startswith(b"}") else start) + rest


def _has(members: dict[str, bytes], path: Path) -> bool:
    if path[0] not in members:
        return False
    if len(path) == 1:
        return True
    try:
        return not is_absent(find({path[0]: msgspec.json.decode(members[path[0]])}, path))
    except REFUSED:
        return True
