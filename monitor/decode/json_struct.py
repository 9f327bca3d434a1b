"""Makes the typed decoder for the records of a stream: it reads the wanted fields, nested ones too, and skips all others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec

from monitor.decode.field_paths import Path
from monitor.decode.json_vectors import Vector
from monitor.decode.layout import Kind
from monitor.decode.record_format import ModelFormat, RecordFields

TEXT = str | int | float | None
NUMBER_OR_TEXT = float | str | None
TEXT_OR_INTEGER = str | int | None

_MOST_IN_A_TUPLE = 1_000

Columns = Mapping[Path, Sequence[Any]]
"""By path, the values of some records: None where an optional field is absent, UNSET where an output is."""


@dataclass(slots=True)
class _Node:
    """A field that is read as a value, or for the fields inside it."""

    types: list[Any] = field(default_factory=list)
    required: bool = False
    inside: dict[str, "_Node"] = field(default_factory=dict)


class JsonStruct:
    """The typed decoder of one stream's records, and what takes its records apart.

    Fields whose values are known are decoded to these very values, and others in their place are refused.
    """

    def __init__(
        self, models: Sequence[ModelFormat], fields: RecordFields, known: Mapping[Path, Sequence[str]] | None = None
    ) -> None:
        root = _tree(models, fields)
        self.texts = tuple(path for path, node in _leaves((), root) if node.types and set(node.types) == {TEXT})
        """Paths to texts that are nothing else."""
        for path, values in (known or {}).items():
            _narrow(root, path, values)
        self._root = _Level(root)
        decoder = msgspec.json.Decoder[Any](self._root.struct)
        self.decode = decoder.decode
        self.decode_lines = decoder.decode_lines

    def columns(self, records: Sequence[Any]) -> Columns:
        """Return the values of records by path."""
        found: dict[Path, Sequence[Any]] = {}
        self._root.take_apart((), records, found)
        return found


class _Level:
    """The struct for one level of nesting."""

    def __init__(self, node: _Node) -> None:
        self._below = {name: _Level(child) for name, child in node.inside.items() if child.inside}
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        renamed = {}
        # Required ones first, as in any signature.
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

    def take_apart(self, path: Path, records: Sequence[Any], found: dict[Path, Sequence[Any]]) -> None:
        """Add the values of records to those found."""
        columns = zip(*map(msgspec.structs.astuple, records), strict=True)
        for name, column in zip(self._names, columns, strict=True):
            here = (*path, name)
            if name not in self._below:
                found[here] = column
                continue
            below = self._below[name]
            absent = None if None not in column else below.struct()
            below.take_apart(here, [absent if one is None else one for one in column], found)


def _tree(models: Sequence[ModelFormat], fields: RecordFields) -> _Node:
    root = _Node()
    for name, kind in (("model", TEXT), ("version", TEXT), ("id", TEXT_OR_INTEGER), ("time", NUMBER_OR_TEXT)):
        _place(root, fields.path(name), kind, required=False)
    if fields.predicted is not None:
        # Whatever it holds, it only ever disagrees.
        _place(root, fields.path("predicted"), Any, required=False)
    for model in models:
        for segment in model.segment_fields:
            _place(root, fields.segment_path(segment), TEXT, required=False)
    # What not every model has cannot be asked of every record.
    required = len({fields.output_paths(model) for model in models}) == 1
    for model in models:
        kind = _output_type(model, models, fields)
        for path in fields.output_paths(model):
            _place(root, path, kind if required else kind | msgspec.UnsetType, required=required)
            if not required:
                _place(root, path, msgspec.UnsetType, required=False)
    return root


def _output_type(model: ModelFormat, models: Sequence[ModelFormat], fields: RecordFields) -> Any:  # noqa: ANN401 - a type
    if model.kind is Kind.SCORE or fields.class_columns is not None:
        return float
    # A tuple of known length is decoded faster than a list. But two such lengths cannot stand for one field.
    if len(models) == 1 and model.width <= _MOST_IN_A_TUPLE:
        return tuple.__class_getitem__((float,) * model.width) | dict[str, float]
    return Vector


def _place(root: _Node, path: Path, kind: Any, *, required: bool) -> None:  # noqa: ANN401 - a type, or a union of some
    node = root
    for name in path:
        node = node.inside.setdefault(name, _Node())
        node.required |= required
    node.types.append(kind)


def _leaves(path: Path, node: _Node) -> Iterator[tuple[Path, _Node]]:
    for name, child in node.inside.items():
        yield (*path, name), child
        yield from _leaves((*path, name), child)


def _narrow(root: _Node, path: Path, values: Sequence[str]) -> None:
    node = root
    for name in path:
        node = node.inside[name]
    literal: Any = Literal.__getitem__(tuple(values))
    node.types = [literal | None]
