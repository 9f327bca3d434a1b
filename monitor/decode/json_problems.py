"""Why a line is no record of a stream: the slow, careful look at what the typed decoder refused."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import msgspec

from monitor.decode.columns import text_of
from monitor.decode.field_paths import Path
from monitor.decode.json_values import HUGE, load, problem_of_number, problem_of_output
from monitor.decode.json_vectors import arrange
from monitor.decode.record_format import ModelFormat, RecordFields, reason_of_length
from monitor.decode.rejections import Problem, Reason
from monitor.decode.routing import Routes

_ABSENT = object()

_decode = msgspec.json.Decoder().decode


class Verdict(NamedTuple):
    """What a careful look at a line finds."""

    model: str
    """Empty where it could not be told."""
    reason: Reason
    is_object: bool
    """Whether the line is a JSON object at all."""


class CarefulLook:
    """Finds out what is wrong with lines."""

    def __init__(self, models: Sequence[ModelFormat], routes: Routes, fields: RecordFields) -> None:
        self._routes = routes
        self._fields = fields
        self._model = fields.path("model")
        self._outputs = {model.name: fields.output_paths(model) for model in models}
        self._segments = {model.name: tuple(map(fields.segment_path, model.segment_fields)) for model in models}
        self._time, self._id, self._version = map(fields.path, ("time", "id", "version"))

    def verdict(self, line: bytes) -> Verdict:
        """Say why a line is refused."""
        return self._quick_verdict(line) or self._slow_verdict(line)

    def _quick_verdict(self, line: bytes) -> Verdict | None:
        """Say of an object that lacks what is needed that it does; None where that is not so plain."""
        if b"\\" in line:
            return None
        try:
            value = _decode(line)
        except (ValueError, RecursionError, OverflowError):
            return None
        if not isinstance(value, dict):
            return None
        model = self._routes.find(_optional(find(value, self._model)))
        if isinstance(model, Reason):
            return Verdict("", model, is_object=True)
        # Fields come in the order in which the slow look takes them.
        if is_absent(find(value, self._outputs[model.name][0])):
            return Verdict(model.name, Reason.MISSING_FIELD, is_object=True)
        return None

    def _slow_verdict(self, line: bytes) -> Verdict:
        value = read_line(line)
        if isinstance(value, Problem):
            return Verdict("", value.reason, is_object=False)
        if not isinstance(value, dict):
            return Verdict("", Reason.WRONG_TYPE, is_object=False)
        model = self._routes.find(_optional(find(value, self._model)))
        if isinstance(model, Reason):
            return Verdict("", model, is_object=True)
        return Verdict(model.name, self._reason(value, model), is_object=True)

    def _reason(self, record: dict[str, object], model: ModelFormat) -> Reason:
        if (wrong := self._reason_of_output(record, model)) is not None:
            return wrong
        time = _optional(find(record, self._time))
        if time is not None and not _may_be_time(time):
            return Reason.BAD_TIMESTAMP
        for path in self._segments[model.name]:
            if text_of(_optional(find(record, path))) is None:
                return Reason.BAD_SEGMENT
        for path, floats in ((self._id, False), (self._version, True)):
            value = _optional(find(record, path))
            if text_of(value, floats=floats) is None:
                return Reason.OUT_OF_RANGE if value is HUGE else Reason.WRONG_TYPE
        # The typed decoder is stricter in places: a NaN or Infinity in a field that nobody asked for.
        return Reason.BAD_JSON

    def _reason_of_output(self, record: dict[str, object], model: ModelFormat) -> Reason | None:
        for path in self._outputs[model.name]:
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
