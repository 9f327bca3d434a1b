"""Whole files and arrays for the offline commands and the Python API."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.core.decisions import DecidedBy, Decision
from monitor.core.record_columns import Records, Texts
from monitor.errors import InvalidInput, Problem, UsageError
from monitor.records.batch_builder import ModelRules, model_rules
from monitor.records.columns import NO_CLASS, LabelRules, Labels, TextColumn
from monitor.records.decoder import RecordDecoder
from monitor.records.formats.jsonl import NO_OBJECTS
from monitor.records.formats.npy import ArrayFiles, Description, problem_of_dtype, problem_of_labels, problem_of_shape
from monitor.records.hints import COMMAND_LINE
from monitor.records.record_batch import SUFFIXES, Format, RecordBatch, format_of
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields, RecordSchema, numbered
from monitor.records.rejections import EXPECTED, Reason, RejectionProblem, Rejections, listed, preview

MAX_NUMBERS = 1 << 30
"""The limit on numbers in one file: 4 GiB of float32."""

# Bounds the memory of the rules.
_BLOCK_NUMBERS = 1 << 20

_MODEL = "model"


@dataclass(frozen=True)
class Decoded:
    """The decoded content of a file or array."""

    records: Records
    classes: tuple[str, ...]
    """Class names; empty if unknown."""
    rejections: Rejections
    hints: tuple[str, ...]
    """Probable causes of rejections."""
    unusable: str | None = None
    """Why even the accepted records must not be used; None if they may."""
    referred: int = 0
    """Records that the device referred to a person. They are not among the others."""


def offline_schema(
    kind: OutputKind = OutputKind.PROBS,
    vector_field: str | None = None,
    class_columns: tuple[str, ...] | None = None,
    label_field: str | None = None,
    classes: tuple[str, ...] | None = None,
    decision_field: str | None = None,
    segments: Mapping[str, str | None] | None = None,
) -> RecordSchema:
    """Return the schema of a file with one model and no fields but outputs, labels, decisions and segments.

    `segments` are names of segment fields, with a path if it is not the name.
    """
    segments = segments or {}
    fields = RecordFields(
        vector_field,
        class_columns,
        model=None,
        version=None,
        id=None,
        time=None,
        predicted=decision_field,
        segments={name: path for name, path in segments.items() if path is not None},
        label=label_field,
        any_name=True,
    )
    decision = Decision() if decision_field is None else Decision(DecidedBy.FIELD)
    if classes is None and class_columns is not None and fields.prefix is None:
        classes = numbered(len(class_columns))
    return RecordSchema((ModelFormat(_MODEL, classes, kind, tuple(segments), decision),), fields, from_file=True)


def read_file(path: Path, schema: RecordSchema, *, labels: Path | None = None) -> Decoded:
    """Read a whole file; `labels` is the file of labels beside an NPY file.

    Bad records are counted in the result; raises InvalidInput if the whole file cannot be used.
    """
    format_ = format_of(path.name) if path.suffix else None
    if format_ is None:
        raise InvalidInput(Problem(str(path), f"a file named {', '.join(SUFFIXES)}", repr(path.suffix or "no suffix")))
    if labels is not None and format_ is not Format.NPY:
        raise UsageError(Problem(str(labels), "a file of labels only beside an .npy file", str(path)))
    try:
        for file in (path, labels):
            if file is not None and not file.is_file():
                found = "a directory" if file.is_dir() else "something else" if file.exists() else "none"
                raise InvalidInput(Problem(str(file), "a file", found))
        where = str(path)
        with path.open("rb") as content:
            if labels is not None:
                rules = model_rules(schema, b"", COMMAND_LINE)
                with labels.open("rb") as beside:
                    batches = ArrayFiles(schema, rules).npy(where, content, 0, beside)
                    return _joined(where, rules, batches, labelled=True)
            decoder = RecordDecoder(schema.models, schema.fields, hash_key=b"", wording=COMMAND_LINE, offline=True)
            batches = decoder.settled(where, content, format_)
            return _joined(where, decoder.rules, batches, labelled=schema.fields.label is not None)
    except OSError as error:
        where, found = str(error.filename or path), str(error.strerror or error)
        raise InvalidInput(Problem(where, "a readable file", found)) from error


def _joined(
    where: str, rules_of_all: Mapping[str, ModelRules], batches: Iterable[RecordBatch], *, labelled: bool
) -> Decoded:
    """Return the content of all batches of a file."""
    records: list[Records] = []
    rejections = Rejections("row")
    room = MAX_NUMBERS
    non_json_lines: int | None = None
    for batch in batches:
        rejections.update(batch.rejected, batch.explained)
        non_json_lines = batch.non_json_lines
        for some in batch.models.values():
            records.append(some)
            room -= some.vectors.size
        if room < 0:
            raise RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_NUMBERS:,} numbers", "more").of_file(where)
    (rules,) = rules_of_all.values()
    classes = rules.model.classes or ()
    nothing = np.empty((0, len(classes)), dtype=np.float32)
    no_labels = np.empty(0, dtype=np.int64) if labelled else None
    everything = Records(nothing, np.empty(0), labels=no_labels)
    if records:
        everything = Records.joined(records)
    elif rules.model.decided_by_record:
        everything = replace(everything, decided=np.empty(0, dtype=np.int64))
    joined = everything.without_referred()
    hints = rules.tally.hints(everything.vectors)
    if non_json_lines:
        hints += (f"expected {NO_OBJECTS.expected}, found {NO_OBJECTS.found}",)
    referred = len(everything) - len(joined)
    return Decoded(joined, classes, rejections, hints, _counted_from_one(rules, joined), referred)


def _counted_from_one(rules: ModelRules, records: Records) -> str | None:
    """Return the message that labels count from 1, if a K occurs, no 0 does, and the labels minus 1 fit better."""
    labels = records.labels
    if rules.labels is None or not rules.one_past_the_last or labels is None or not labels.size or labels.min() == 0:
        return None
    predicted = records.vectors.argmax(axis=1)
    fits_as_is = np.count_nonzero(predicted == labels) > np.count_nonzero(predicted == labels - 1)
    return None if fits_as_is else rules.labels.counted_from_one()


def accept(
    matrix: NDArray[Any], schema: RecordSchema, labels: Labels | None = None, *, where: str = "outputs"
) -> Decoded:
    """Apply the rules to the rows of an array; `where` is its name in messages.

    The array has shape (records, classes), or (records,) for scores.
    """
    (model,) = schema.models
    problem = problem_of_dtype(matrix.dtype)
    if problem is None and matrix.shape != (0, 0):
        problem = problem_of_shape(Description(matrix.dtype, matrix.shape, fortran=False), model)
    if problem is None and labels is not None:
        problem = problem_of_labels(labels, len(matrix))
    if problem is not None:
        raise problem.of_file(where)
    rows = matrix[:, np.newaxis] if matrix.ndim == 1 else matrix
    rules = model_rules(schema, b"", COMMAND_LINE)
    arrays = ArrayFiles(schema, rules)
    step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))

    def batches() -> Iterator[RecordBatch]:
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step], dtype=np.float64)
            yield arrays.batch(where, start, block, None if labels is None else labels[start : start + step])

    return _joined(where, rules, batches(), labelled=labels is not None)


def as_kind(kind: str) -> OutputKind:
    """Return the output kind of a name; raises UsageError."""
    try:
        return OutputKind(kind)
    except ValueError:
        raise UsageError(Problem("kind", f"one of {', '.join(OutputKind)}", repr(kind))) from None


def accept_array(
    outputs: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    kind: OutputKind = OutputKind.PROBS,
    classes: tuple[str, ...] | None = None,
    decided: ArrayLike | None = None,
    segments: Mapping[str, ArrayLike] | None = None,
) -> Decoded:
    """Return the vectors of an array of shape (records, classes); raises InvalidInput that names the bad rows.

    `decided` are the decisions of the device, names or indices of classes, None for records referred to a person.
    `segments` are columns of segment fields, None for a missing value.
    """
    try:
        matrix = np.asarray(outputs)
        named = None if labels is None else np.asarray(labels)
    except ValueError as error:
        expected = "an array of shape (records, classes)"
        raise InvalidInput(Problem("outputs", expected, "rows of unequal length")) from error
    decoded = accept(matrix, offline_schema(kind, classes=classes), named)
    if decoded.unusable:
        raise InvalidInput(f"outputs: {decoded.unusable}")
    if decoded.rejections.total:
        raise InvalidInput(f"outputs: {decoded.rejections}")
    if segments:
        fields = {name: _segment_column(name, column, len(decoded.records)) for name, column in segments.items()}
        decoded = replace(decoded, records=replace(decoded.records, fields=fields))
    return decoded if decided is None else _with_decisions(decoded, np.asarray(decided))


def _segment_column(name: str, column: ArrayLike, count: int) -> Texts:
    """Return a column of segment values; raises InvalidInput."""
    # As objects, so that numpy does not turn None and numbers into texts.
    array = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
    where, values = f"segments[{name!r}]", array.tolist()
    if array.shape != (count,):
        raise InvalidInput(Problem(where, f"{count:,} values, one a record", f"{array.shape}"))
    built = TextColumn()
    built.add(values, count)
    if (wrong := built.invalid_segments()) is not None:
        row = int(np.argmax(wrong))
        raise InvalidInput(Problem(f"{where}[{row}]", EXPECTED[Reason.BAD_SEGMENT], preview(values[row])))
    return built.texts()


def _with_decisions(decoded: Decoded, decided: NDArray[Any]) -> Decoded:
    """Return records with their decisions, without those that were referred to a person."""
    if decided.shape != decoded.records.at.shape:
        raise InvalidInput(Problem("decided", f"{len(decoded.records):,} classes, one a record", f"{decided.shape}"))
    values: list[object] = decided.tolist()
    indices, _ = LabelRules(decoded.classes).indices(values)
    for row in np.flatnonzero(indices == NO_CLASS).tolist():
        if values[row] is not None:
            expected = f"one of the classes {listed(decoded.classes)}, or None"
            raise InvalidInput(Problem(f"decided[{row}]", expected, preview(values[row])))
    kept = replace(decoded.records, decided=indices).without_referred()
    return replace(decoded, records=kept, referred=len(indices) - len(kept))
