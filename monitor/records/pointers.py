"""Pointers to rejected records: where one is, never its content."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import msgspec
import numpy as np

from monitor.records.formats.json_problems import find, is_absent, read_line
from monitor.records.record_batch import Pointer, bare_pointer
from monitor.records.record_schema import FieldPath, RecordSchema
from monitor.records.rejections import Reason, RejectedRecord, RejectionProblem
from monitor.records.vectors import Indices

Text = bytes | msgspec.Raw
"""The JSON text of one value."""

_DIGEST_BYTES = 8
_RAW_BYTES = 4 << 10

_MOST_SHAPED_BYTES = 64 << 10
"""Longer lines get no shape: parsing them again is too slow."""


@dataclass(frozen=True, slots=True)
class LinePointers:
    """Creates pointers to rejected lines of one piece."""

    data: bytes
    offset: int
    hash_key: bytes
    keep_raw: bool
    shape: "RecordShape | None"

    def __call__(self, rejected: RejectedRecord) -> Pointer:
        """Return the pointer to a line."""
        if rejected.start < 0:
            return bare_pointer(rejected)
        line = self.data[rejected.start : rejected.end]
        return Pointer(
            rejected.reason,
            rejected.number,
            self.offset + rejected.start,
            len(line),
            blake2b(line, digest_size=_DIGEST_BYTES, key=self.hash_key).hexdigest(),
            None if self.shape is None or len(line) > _MOST_SHAPED_BYTES else self.shape.of(line),
            line[:_RAW_BYTES] if self.keep_raw else None,
            rejected.expected,
        )


class RecordShape:
    """Describes records by the types and lengths of their configured fields."""

    def __init__(self, schema: RecordSchema) -> None:
        fields = schema.fields
        paths: dict[str, FieldPath] = {}
        for model in schema.models:
            outputs = zip(schema.outputs(model), schema.output_paths(model), strict=True)
            paths |= dict(list(outputs)[:_MOST_OUTPUTS])
        single = schema.single_paths()
        paths |= {
            getattr(fields, name): single[name]
            for name in ("model", "version", "id", "time", "label")
            if name in single
        }
        paths |= {fields.segment(name): fields.segment_path(name) for name in schema.named_fields()}
        self._paths = paths

    def of(self, line: bytes) -> str | None:
        """Return the shape of a JSON line; None if it is not an object."""
        value = read_line(line)
        if isinstance(value, RejectionProblem) or not isinstance(value, dict):
            return None
        found = {name: find(value, path) for name, path in self._paths.items()}
        return ", ".join(f"{name}: {_type_of(one)}" for name, one in found.items() if not is_absent(one))


_MOST_OUTPUTS = 5


def _type_of(value: object) -> str:
    name = _TYPES.get(type(value), "int")
    return f"{name}[{len(value)}]" if isinstance(value, str | list | dict) else name


_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "bool",
    float: "float",
    str: "str",
    list: "list",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class PointerRules:
    """The settings of pointers."""

    hash_key: bytes
    keep_raw: bool
    shape: RecordShape

    def of_lines(self, data: bytes, offset: int, *, is_json: bool) -> LinePointers:
        """Return the pointers to lines of a piece."""
        return LinePointers(data, offset, self.hash_key, self.keep_raw, self.shape if is_json else None)

    def of_message(self, message: bytes, offset: int) -> Pointer:
        """Return a pointer to a whole message."""
        return LinePointers(message, offset, self.hash_key, False, None)(_all_of(message))

    def of_record(self, text: bytes) -> Pointer:
        """Return a pointer with the shape of a record."""
        return LinePointers(text, 0, self.hash_key, self.keep_raw, self.shape)(_all_of(text))


class MessagePointers:
    """Creates pointers to rejected records of messages, in ascending order."""

    def __init__(
        self,
        rules: PointerRules,
        values: Sequence[bytes],
        offsets: Sequence[int],
        ends: Indices,
        texts_of: Callable[[bytes], Sequence[Text] | Reason],
    ) -> None:
        self._rules = rules
        self._values = values
        self._offsets = offsets
        self._ends = ends
        self._texts_of = texts_of
        self._message = -1
        self._first = 0
        self._whole = Pointer(Reason.EMPTY, 0)
        self._texts: Sequence[Text] = ()

    def __call__(self, rejected: RejectedRecord) -> Pointer:
        """Return the pointer: offset, length and digest of the message, and the number of the record in it, from 1."""
        message = int(np.searchsorted(self._ends, rejected.number, side="right"))
        if message != self._message:
            self._open_message(message)
        place = rejected.number - self._first
        looks = self._rules.of_record(bytes(self._texts[place]) if self._texts else self._values[message])
        return replace(
            self._whole,
            reason=rejected.reason,
            number=place + 1,
            shape=looks.shape,
            raw=looks.raw,
            expected=rejected.expected,
        )

    def _open_message(self, message: int) -> None:
        value = self._values[message]
        self._message = message
        self._first = int(self._ends[message - 1]) if message else 0
        self._whole = self._rules.of_message(value, self._offsets[message])
        texts = self._texts_of(value)
        # A message rejected as a whole has no texts; packed records share one.
        count = int(self._ends[message]) - self._first
        self._texts = () if isinstance(texts, Reason) or len(texts) != count else texts


def _all_of(text: bytes) -> RejectedRecord:
    return RejectedRecord(0, Reason.EMPTY, 0, len(text))
