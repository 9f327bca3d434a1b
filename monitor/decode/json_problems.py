"""Why a line is no record of a stream: the slow, careful look at what the typed decoder refused."""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

from monitor.decode.columns import text_of
from monitor.decode.field_paths import Path
from monitor.decode.json_values import HUGE, load, problem_of_number, problem_of_output
from monitor.decode.json_vectors import arrange
from monitor.decode.record_format import ModelFormat, RecordFields, reason_of_length
from monitor.decode.rejections import Problem, Reason
from monitor.decode.routing import Routes

_ABSENT = object()


class Verdict(NamedTuple):
    """What a careful look at a line finds."""

    model: str
    """Empty where it could not be told."""
    reason: Reason
    is_object: bool
    """Whether the line is a JSON object at all."""


class CarefulLook:
    """Finds out what is wrong with lines."""

    def __init__(self, routes: Routes, fields: RecordFields) -> None:
        self._routes = routes
        self._fields = fields

    def verdict(self, line: bytes) -> Verdict:
        """Say why a line is refused."""
        value = read_line(line)
        if isinstance(value, Problem):
            return Verdict("", value.reason, is_object=False)
        if not isinstance(value, dict):
            return Verdict("", Reason.WRONG_TYPE, is_object=False)
        model = self._routes.find(_optional(find(value, self._fields.path("model"))))
        if isinstance(model, Reason):
            return Verdict("", model, is_object=True)
        return Verdict(model.name, self._reason(value, model), is_object=True)

    def _reason(self, record: dict[str, object], model: ModelFormat) -> Reason:
        if (wrong := self._reason_of_output(record, model)) is not None:
            return wrong
        time = _optional(find(record, self._fields.path("time")))
        if time is not None and not _may_be_time(time):
            return Reason.BAD_TIMESTAMP
        for name in model.segment_fields:
            if text_of(_optional(find(record, self._fields.segment_path(name)))) is None:
                return Reason.BAD_SEGMENT
        for name, floats in (("id", False), ("version", True)):
            value = _optional(find(record, self._fields.path(name)))
            if text_of(value, floats=floats) is None:
                return Reason.OUT_OF_RANGE if value is HUGE else Reason.WRONG_TYPE
        # The typed decoder is stricter in places: a NaN or Infinity in a field that nobody asked for.
        return Reason.BAD_JSON

    def _reason_of_output(self, record: dict[str, object], model: ModelFormat) -> Reason | None:
        for path in self._fields.output_paths(model):
            value = find(record, path)
            if value is _ABSENT:
                return Reason.MISSING_FIELD
            if self._fields.class_columns is None:
                return _reason_of_vector(value, model)
            if (problem := problem_of_number(value)) is not None:
                return problem.reason
        return None


def _reason_of_vector(value: object, model: ModelFormat) -> Reason | None:
    if (problem := problem_of_output(value, model.kind)) is not None:
        return problem.reason
    if isinstance(value, dict):
        arranged = arrange(value, model.classes)
        return arranged.reason if isinstance(arranged, Problem) else None
    return reason_of_length(len(value), model) if isinstance(value, list) else None


def read_line(line: bytes) -> object | Problem:
    """Return the JSON value of a line, or why it has none."""
    if b"\0" in line:
        return Problem(Reason.NUL_BYTES, "text", "zero bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Problem(Reason.BAD_ENCODING, "text in UTF-8", "bytes that are not")
    try:
        return load(text, "a JSON object")
    except OverflowError:
        return Problem(Reason.OUT_OF_RANGE, "a record", "one that fits no memory")


def find(record: Mapping[str, object], path: Path) -> object:
    """Return the value at a path, or a mark that is none of JSON's values when there is nothing."""
    value: object = record
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def is_absent(value: object) -> bool:
    """Tell whether nothing was found at a path."""
    return value is _ABSENT


def _optional(value: object) -> object:
    return None if value is _ABSENT else value


def _may_be_time(value: object) -> bool:
    return isinstance(value, str) or (type(value) in {int, float} and isfinite(value))  # type: ignore[arg-type]
