"""Diagnoses why a JSON text is not a record, after the typed decoder failed."""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

import msgspec

from monitor.records.batch_builder import ModelRouter
from monitor.records.columns import text_of
from monitor.records.formats.text import NOT_UTF8, NUL_BYTES
from monitor.records.record_schema import FieldPath, ModelFormat, OutputKind, RecordSchema, join_path
from monitor.records.rejections import Reason, RejectionProblem, listed, preview
from monitor.records.vectors import arrange

# ValueError: decode errors and invalid UTF-8. Not MemoryError, which does not depend on the record.
DECODE_ERRORS = (ValueError, RecursionError, OverflowError)


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
    problem: RejectionProblem | Reason
    is_object: bool
    """Whether the line is a JSON object."""


class LineDiagnostics:
    """Diagnoses rejected lines."""

    def __init__(self, schema: RecordSchema, router: ModelRouter) -> None:
        self._router = router
        self._schema = schema
        self._single = schema.single_paths()
        self._outputs = {model.name: schema.output_paths(model) for model in schema.models}
        self._no_outputs = {name: _missing(paths[0]) for name, paths in self._outputs.items() if paths}
        self._segments = {model.name: schema.segment_paths(model) for model in schema.models}
        self._groups = {model.name: schema.group_path(model) for model in schema.models}

    def diagnosis(self, line: bytes) -> LineDiagnosis:
        """Return why a line is rejected."""
        if self._schema.from_file:
            return self._full_diagnosis(line)
        if (quick := self._quick_diagnosis(line)) is not None:
            return quick
        model, problem, is_object = self._full_diagnosis(line)
        if isinstance(problem, RejectionProblem):
            # Only the offline commands show what was found; without it, more lines have the same diagnosis.
            problem = _without_found(problem.reason, problem.expected)
        return LineDiagnosis(model, problem, is_object)

    def _quick_diagnosis(self, line: bytes) -> LineDiagnosis | None:
        """Return the diagnosis of an object with a frequent problem; None if it needs the full diagnosis."""
        if b"\\" in line:
            return None
        try:
            value = _decode(line)
        except DECODE_ERRORS:
            return None
        if not isinstance(value, dict):
            return None
        model = self._model(value)
        if isinstance(model, Reason):
            return LineDiagnosis("", model, is_object=True)
        # Fields in the order of the full diagnosis.
        outputs = self._outputs[model.name]
        problem = self._quick_problem(find(value, outputs[0]), model) if outputs else None
        if problem is None:
            return None
        if problem.found:
            problem = _without_found(problem.reason, problem.expected)
        return LineDiagnosis(model.name, problem, is_object=True)

    def _quick_problem(self, output: object, model: ModelFormat) -> RejectionProblem | None:
        """Return the problem with the first output of a record in a stream; None if it needs the full diagnosis."""
        if is_absent(output):
            return self._no_outputs[model.name]
        is_vector = self._schema.fields.class_columns is None
        if output is None or isinstance(output, str | bool):
            return problem_of_output(output, model.kind) if is_vector else problem_of_number(output)
        if not is_vector or not isinstance(output, list) or len(output) == model.width:
            return None
        # Integers may be too large, and scores are no lists.
        is_sure = (
            model.kind is not OutputKind.SCORE and "label" not in self._single and set(map(type, output)) <= {float}
        )
        return model.problem_of_length(len(output)) if is_sure else None

    def _full_diagnosis(self, line: bytes) -> LineDiagnosis:
        value = read_line(line)
        if isinstance(value, RejectionProblem):
            return LineDiagnosis("", value, is_object=False)
        if not isinstance(value, dict):
            problem = RejectionProblem(Reason.WRONG_TYPE, "a JSON object", shown_json(value))
            return LineDiagnosis("", problem, is_object=False)
        model = self._model(value)
        if isinstance(model, Reason):
            return LineDiagnosis("", model, is_object=True)
        return LineDiagnosis(model.name, self._problem(value, model), is_object=True)

    def _model(self, record: dict[str, object]) -> ModelFormat | Reason:
        return self._router.find(self._optional(record, "model"))

    def _optional(self, record: dict[str, object], name: str) -> object:
        return self._at(record, self._single.get(name))

    def _at(self, record: dict[str, object], path: FieldPath | None) -> object:
        return None if path is None or is_absent(value := find(record, path)) else value

    def _problem(self, record: dict[str, object], model: ModelFormat) -> RejectionProblem | Reason:
        if (problem := self._problem_of_outputs(record, model)) is not None:
            return problem
        if (problem := self._problem_of_label(record) or self._problem_of_vector(record, model)) is not None:
            return problem
        time = self._optional(record, "time")
        if time is not None and not _may_be_time(time):
            return Reason.BAD_TIMESTAMP
        for path in self._segments[model.name]:
            if text_of(None if is_absent(value := find(record, path)) else value) is None:
                return Reason.BAD_SEGMENT
        single = self._single
        for path_, floats in (
            (single.get("id"), False),
            (single.get("version"), True),
            (self._groups[model.name], False),
        ):
            value = self._at(record, path_)
            if text_of(value, floats=floats) is None:
                return _HUGE_TEXT if value is HUGE else Reason.WRONG_TYPE
        # The typed decoder is stricter: it rejects NaN and Infinity in unused fields.
        return RejectionProblem(Reason.BAD_JSON, "a JSON object", "one with a NaN or Infinity in another field")

    def _problem_of_outputs(self, record: dict[str, object], model: ModelFormat) -> RejectionProblem | None:
        outputs = self._outputs[model.name]
        if self._schema.needs_columns:
            found = columns_of(self._schema, record)
            if isinstance(found, RejectionProblem):
                return found
            outputs = found.output_paths(model)
        for path in outputs:
            value = find(record, path)
            if is_absent(value):
                return _missing(path, _fields(record))
            is_vector = self._schema.fields.class_columns is None
            problem = problem_of_output(value, model.kind) if is_vector else problem_of_number(value)
            if problem is not None:
                return problem
        return None

    def _problem_of_label(self, record: dict[str, object]) -> RejectionProblem | None:
        if (path := self._single.get("label")) is None:
            return None
        value = find(record, path)
        return _missing(path, _fields(record)) if is_absent(value) else problem_of_label(value)

    def _problem_of_vector(self, record: dict[str, object], model: ModelFormat) -> RejectionProblem | None:
        """Return the problem with the classes or the length of a vector."""
        outputs = self._outputs[model.name]
        if self._schema.fields.class_columns is not None or not outputs:
            return None
        value = find(record, outputs[0])
        if isinstance(value, dict):
            arranged = arrange(value, model.classes)
            return arranged if isinstance(arranged, RejectionProblem) else None
        return model.problem_of_length(len(value)) if isinstance(value, list) else None


_HUGE_TEXT = RejectionProblem(Reason.OUT_OF_RANGE, "a string or a smaller number", "a huge integer")


def columns_of(schema: RecordSchema, record: dict[str, object]) -> RecordSchema | RejectionProblem:
    """Return the schema with the class columns of a record."""
    above, _ = schema.prefix_path()
    inside = find(record, above)
    return schema.with_columns(tuple(inside) if isinstance(inside, dict) else (), above)


@lru_cache(1_024)
def _without_found(reason: Reason, expected: str) -> RejectionProblem:
    # Cached, since equal objects compare faster if they are the same.
    return RejectionProblem(reason, expected, "")


def _missing(path: FieldPath, found: str = "") -> RejectionProblem:
    return RejectionProblem(Reason.MISSING_FIELD, f"a field {join_path(path)!r}", found)


def read_line(line: bytes) -> object | RejectionProblem:
    """Return the JSON value of a line, or the problem."""
    if b"\0" in line:
        return NUL_BYTES
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
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


def _may_be_time(value: object) -> bool:
    return isinstance(value, str) or (type(value) in {int, float} and isfinite(value))  # type: ignore[arg-type]
