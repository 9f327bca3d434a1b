"""The typed JSON decoder of a schema: it reads the configured fields, nested ones too, and learns strings that repeat.

A known string is not created again for each record, and is compared by identity, which saves about a tenth of decoding
time. Unknown strings fall back to the general decoder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec

from monitor.records.columns import is_segment
from monitor.records.record_schema import FieldPath, ModelFormat, OutputKind, RecordSchema
from monitor.records.vectors import Vector

TEXT = str | int | float | None

_SINGLE_TYPES: dict[str, Any] = {
    "model": TEXT,
    "version": TEXT,
    "id": str | int | None,
    "time": float | str | None,
    # Any value: an invalid one counts as a mismatch.
    "predicted": Any,
    "label": str | int | float,
}

_MOST_IN_A_TUPLE = 1_000

Columns = Mapping[FieldPath, Sequence[Any]]
"""Values by path: None for a missing optional field, UNSET for missing outputs."""


@dataclass(slots=True)
class _Node:
    """A field with a value, or with nested fields."""

    types: list[Any] = field(default_factory=list)
    required: bool = False
    inside: dict[str, "_Node"] = field(default_factory=dict)


class JsonStruct:
    """The typed decoder of records, and the conversion of records into columns.

    Fields with known values accept only those.
    """

    def __init__(
        self,
        schema: RecordSchema,
        known: Mapping[FieldPath, Sequence[str]] | None = None,
    ) -> None:
        root = _tree(schema)
        self.texts = tuple(path for path, node in _leaves((), root) if node.types and set(node.types) == {TEXT})
        """Paths of string fields."""
        for path, values in (known or {}).items():
            _narrow(root, path, values)
        self._root = _Level(root)
        decoder = msgspec.json.Decoder[Any](self._root.struct)
        self.decode = decoder.decode
        self.decode_lines = decoder.decode_lines

    def columns(self, records: Sequence[Any]) -> Columns:
        """Return the values of records by path."""
        found: dict[FieldPath, Sequence[Any]] = {}
        self._root.add_columns((), records, found)
        return found


class _Level:
    """The struct for one level of nesting."""

    def __init__(self, node: _Node) -> None:
        self._below = {name: _Level(child) for name, child in node.inside.items() if child.inside}
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        renamed = {}
        # Required fields come first.
        self._names = tuple(sorted(node.inside, key=lambda name: not node.inside[name].required))
        for place, name in enumerate(self._names):
            child = node.inside[name]
            own = f"field_{place}"
            renamed[own] = name
            kind = self._below[name].struct if name in self._below else reduce(or_, child.types)
            if child.required:
                fields.append((own, kind))
            elif name in self._below:
                fields.append((own, kind | None, None))
            else:
                is_output = msgspec.UnsetType in child.types
                fields.append((own, kind, msgspec.UNSET if is_output else None))
        self.struct: type[Any] = msgspec.defstruct("Record", fields, rename=renamed, gc=False)

    def add_columns(self, path: FieldPath, records: Sequence[Any], found: dict[FieldPath, Sequence[Any]]) -> None:
        """Add the values of records to `found`."""
        columns = zip(*map(msgspec.structs.astuple, records), strict=True)
        for name, column in zip(self._names, columns, strict=True):
            here = (*path, name)
            if name not in self._below:
                found[here] = column
                continue
            below = self._below[name]
            absent = None if None not in column else below.struct()
            below.add_columns(here, [absent if one is None else one for one in column], found)


def _tree(schema: RecordSchema) -> _Node:
    root = _Node()
    for name, path in schema.single_paths().items():
        _place(root, path, _SINGLE_TYPES[name], required=name == "label")
    for model in schema.models:
        for path in schema.segment_paths(model):
            _place(root, path, TEXT, required=False)
    # Required only if all models have the same output fields.
    required = len({schema.output_paths(model) for model in schema.models}) == 1
    for model in schema.models:
        kind = _output_type(model, schema)
        for path in schema.output_paths(model):
            _place(root, path, kind if required else kind | msgspec.UnsetType, required=required)
            if not required:
                _place(root, path, msgspec.UnsetType, required=False)
    return root


def _output_type(model: ModelFormat, schema: RecordSchema) -> Any:  # noqa: ANN401 - a type
    if model.kind is OutputKind.SCORE or schema.fields.class_columns is not None:
        return float
    # A tuple of known length decodes faster than a list, but a union of two lengths is not possible.
    if len(schema.models) == 1 and 0 < model.width <= _MOST_IN_A_TUPLE:
        return tuple.__class_getitem__((float,) * model.width) | dict[str, float]
    return Vector


def _place(root: _Node, path: FieldPath, kind: Any, *, required: bool) -> None:  # noqa: ANN401 - a type, or a union of some
    node = root
    for name in path:
        node = node.inside.setdefault(name, _Node())
        node.required |= required
    node.types.append(kind)


def _leaves(path: FieldPath, node: _Node) -> Iterator[tuple[FieldPath, _Node]]:
    for name, child in node.inside.items():
        yield (*path, name), child
        yield from _leaves((*path, name), child)


def _narrow(root: _Node, path: FieldPath, values: Sequence[str]) -> None:
    node = root
    for name in path:
        node = node.inside[name]
    literal: Any = Literal.__getitem__(tuple(values))
    node.types = [literal | None]


MAX_KNOWN = 32
"""A field with more distinct values is not learned."""

_MOST_LESSONS = 64
_CREDIT = 16.0
_EARNED = 0.25
"""The credit of a success; a failure costs 1."""

# ValueError: decode errors and invalid UTF-8. Not MemoryError, which does not depend on the record.
DECODE_ERRORS = (ValueError, RecursionError, OverflowError)


class LearnedStruct:
    """The general decoder, and a faster one for the strings seen so far."""

    def __init__(self, schema: RecordSchema) -> None:
        self._schema = schema
        self._general = JsonStruct(schema)
        self._known: dict[FieldPath, list[str]] = {path: [] for path in self._general.texts}
        self._fast: JsonStruct | None = None
        self._lessons = 0
        self._credit = _CREDIT
        self.decode = self._general.decode
        self.columns = self._general.columns

    def decode_lines(self, text: memoryview) -> list[Any]:
        """Return the records of some lines; raises one of DECODE_ERRORS."""
        if self._fast is not None:
            try:
                records: list[Any] = self._fast.decode_lines(text)
            except DECODE_ERRORS:
                self._lose_credit()
            else:
                self._credit = min(_CREDIT, self._credit + _EARNED)
                return records
        records = self._general.decode_lines(text)
        if self._lessons < _MOST_LESSONS and records:
            self._learn(self._general.columns(records))
        return records

    def _lose_credit(self) -> None:
        # With new strings or bad lines all the time, trying twice costs more than it saves.
        self._credit -= 1.0
        if self._credit <= 0.0:
            self._fast = None
            self._lessons = _MOST_LESSONS

    def _learn(self, columns: Columns) -> None:
        changed = False
        for path, known in list(self._known.items()):
            new = set(columns[path]) - {None, *known}
            if len(known) + len(new) > MAX_KNOWN or not all(isinstance(one, str) and is_segment(one) for one in new):
                del self._known[path]
                changed = True
            elif new:
                known.extend(sorted(new))
                changed = True
        # Counted even if nothing was learned, so that learning ends.
        self._lessons += 1
        if changed:
            useful = {path: known for path, known in self._known.items() if known}
            self._fast = JsonStruct(self._schema, useful) if useful else None
