"""Diagnoses why a JSON text is not a record, after the typed decoder failed."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import msgspec

from monitor.records.batch_builder import ModelRouter
from monitor.records.columns import text_of
from monitor.records.layout import Layout, OutputKind
from monitor.records.outputs import arrange
from monitor.records.record_schema import FieldPath, ModelFormat, RecordFields, reason_of_length
from monitor.records.rejections import Reason, RejectionProblem, listed, preview


class _HugeInteger:
    """The placeholder of an integer with too many digits."""

    def __repr__(self) -> str:
        return "a huge integer"


HUGE = _HugeInteger()


def load(text: str, expected: str) -> object | RejectionProblem:
    """Parse JSON, including NaN and Infinity, or return the problem."""
    try:
        value: object = _DECODER.decode(text)
        # Lone surrogates, which only escapes can express, are valid JSON but not UTF-8.
        if "\\" in text:
            json.dumps(value, ensure_ascii=False, default=repr).encode()
    except RecursionError:
        return RejectionProblem(Reason.TOO_DEEP, "a flat record", "JSON nested too deep")
    except UnicodeEncodeError:
        return RejectionProblem(Reason.BAD_ENCODING, "text in UTF-8", "half a surrogate pair")
    except json.JSONDecodeError as error:
        # The position of the error, not the content: a record may name a patient.
        return RejectionProblem(Reason.BAD_JSON, expected, f"a syntax error at character {error.pos + 1}")
    except ValueError:
        return RejectionProblem(Reason.BAD_JSON, expected, "text that is not JSON")
    return value


def problem_of_output(value: object, kind: OutputKind) -> RejectionProblem | None:
    """Return the problem with a vector or score; None if it is valid."""
    if kind is OutputKind.SCORE:
        return problem_of_number(value)
    match value:
        case list():
            items = value
        case dict():
            items = list(value.values())
        case None | bool() | str():
            return RejectionProblem(Reason.WRONG_TYPE, "a vector of numbers", shown_json(value))
        case _:
            return RejectionProblem(Reason.NOT_A_VECTOR, "a vector of numbers", shown_json(value))
    for item in items:
        if isinstance(item, list | dict):
            return RejectionProblem(Reason.NOT_A_VECTOR, "a vector of numbers", f"{preview(item)} inside it")
        if (problem := problem_of_number(item)) is not None:
            return problem
    return None


def problem_of_number(value: object) -> RejectionProblem | None:
    """Return the problem with a number; None if it is valid."""
    if isinstance(value, _HugeInteger):
        return RejectionProblem(Reason.OUT_OF_RANGE, "a number", "a huge integer")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return RejectionProblem(Reason.WRONG_TYPE, "a number", shown_json(value))
    if not isfinite(value):
        return RejectionProblem(Reason.NOT_FINITE, "finite numbers", preview(value))
    return None


def problem_of_label(value: object) -> RejectionProblem | None:
    """Return the problem with a label; None if it is valid."""
    if isinstance(value, _HugeInteger):
        return RejectionProblem(Reason.OUT_OF_RANGE, "a class name or index", "a huge integer")
    usable = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    if isinstance(value, bool) or not usable:
        return RejectionProblem(Reason.WRONG_TYPE, "a class name or index", shown_json(value))
    return None


def problem_of_record(value: object, layout: Layout, columns: tuple[str, ...] | None) -> RejectionProblem | None:
    """Return the problem with a record; None if it is valid."""
    if not isinstance(value, dict):
        return RejectionProblem(Reason.WRONG_TYPE, "a JSON object", shown_json(value))
    for name in (layout.field,) if columns is None else columns:
        if name not in value:
            return RejectionProblem(Reason.MISSING_FIELD, f"a field {name!r}", _fields(value))
        problem = problem_of_output(value[name], layout.kind) if columns is None else problem_of_number(value[name])
        if problem is not None:
            return problem
    if layout.label_field is None:
        return None
    if layout.label_field not in value:
        return RejectionProblem(Reason.MISSING_FIELD, f"a field {layout.label_field!r}", _fields(value))
    return problem_of_label(value[layout.label_field])


def shown_json(value: object) -> str:
    """Return a JSON value for a message. Strings are not shown: they may name a patient."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return json.dumps(value) if value is None or isinstance(value, bool) else preview(value)


def _fields(record: dict[str, object]) -> str:
    # Field names may be shown, values may not.
    return f"the fields {listed(tuple(record))}" if record else "no fields"


def _bounded_integer(digits: str) -> int | _HugeInteger:
    return int(digits) if len(digits) <= 19 else HUGE


_DECODER = json.JSONDecoder(parse_int=_bounded_integer)


_ABSENT = object()

_decode = msgspec.json.Decoder().decode


class LineDiagnosis(NamedTuple):
    """Why a line is rejected."""

    model: str
    """Empty if unknown."""
    reason: Reason
    is_object: bool
    """Whether the line is a JSON object."""


class LineDiagnostics:
    """Diagnoses rejected lines."""

    def __init__(self, models: Sequence[ModelFormat], routes: ModelRouter, fields: RecordFields) -> None:
        self._router = routes
        self._fields = fields
        self._model = fields.path("model")
        self._outputs = {model.name: fields.output_paths(model) for model in models}
        self._segments = {model.name: tuple(map(fields.segment_path, model.segment_fields)) for model in models}
        self._time, self._id, self._version = map(fields.path, ("time", "id", "version"))

    def diagnosis(self, line: bytes) -> LineDiagnosis:
        """Return why a line is rejected."""
        return self._quick_verdict(line) or self._slow_verdict(line)

    def _quick_verdict(self, line: bytes) -> LineDiagnosis | None:
        """Return the diagnosis of an object with a missing field; None if it needs the full diagnosis."""
        if b"\\" in line:
            return None
        try:
            value = _decode(line)
        except (ValueError, RecursionError, OverflowError):
            return None
        if not isinstance(value, dict):
            return None
        model = self._router.find(_optional(find(value, self._model)))
        if isinstance(model, Reason):
            return LineDiagnosis("", model, is_object=True)
        # Fields in the order of the full diagnosis.
        if is_absent(find(value, self._outputs[model.name][0])):
            return LineDiagnosis(model.name, Reason.MISSING_FIELD, is_object=True)
        return None

    def _slow_verdict(self, line: bytes) -> LineDiagnosis:
        value = read_line(line)
        if isinstance(value, RejectionProblem):
            return LineDiagnosis("", value.reason, is_object=False)
        if not isinstance(value, dict):
            return LineDiagnosis("", Reason.WRONG_TYPE, is_object=False)
        model = self._router.find(_optional(find(value, self._model)))
        if isinstance(model, Reason):
            return LineDiagnosis("", model, is_object=True)
        return LineDiagnosis(model.name, self._reason(value, model), is_object=True)

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
        # The typed decoder is stricter: it rejects NaN and Infinity in unused fields.
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
        return arranged.reason if isinstance(arranged, RejectionProblem) else None
    return reason_of_length(len(value), model) if isinstance(value, list) else None


def read_line(line: bytes) -> object | RejectionProblem:
    """Return the JSON value of a line, or the problem."""
    if b"\0" in line:
        return RejectionProblem(Reason.NUL_BYTES, "text", "NUL bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return RejectionProblem(Reason.BAD_ENCODING, "text in UTF-8", "other bytes")
    try:
        return load(text, "a JSON object")
    except OverflowError:
        return RejectionProblem(Reason.OUT_OF_RANGE, "a record", "one that does not fit in memory")


def find(record: Mapping[str, object], path: FieldPath) -> object:
    """Return the value at a path, or a marker if there is none."""
    value: object = record
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def is_absent(value: object) -> bool:
    """Return whether `find` found nothing."""
    return value is _ABSENT


def _optional(value: object) -> object:
    return None if value is _ABSENT else value


def _may_be_time(value: object) -> bool:
    return isinstance(value, str) or (type(value) in {int, float} and isfinite(value))  # type: ignore[arg-type]
