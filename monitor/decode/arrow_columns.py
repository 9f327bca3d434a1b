"""Columns of Arrow tables as the rules want them: texts and numbers as Python values, times in the declared unit."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from monitor.decode.arrow import floats_in, is_list, is_number, nulls_in, vectors_in
from monitor.decode.columns import Values, shortest
from monitor.decode.field_paths import Path, join_path
from monitor.decode.layout import Kind
from monitor.decode.record_format import ModelFormat, RecordFields
from monitor.decode.rejections import Problem, Reason
from monitor.decode.row_files import Vectors
from monitor.decode.vectors import any_in_row

LONGEST_TEXT = 4_096
"""Characters of a text that are looked at: a small file may repeat a huge one any number of times."""


class ArrowColumns:
    """Finds the columns that are wanted in one file, and reads them batch by batch."""

    def __init__(self, arrow: Any, schema: Any) -> None:  # noqa: ANN401 - pyarrow has no types
        self._arrow = arrow
        self._types = arrow.types
        self._schema = schema

    def has(self, path: Path) -> bool:
        """Tell whether a path leads to a column, once."""
        return self._type_at(path) is not None

    def names_in(self, path: Path) -> list[str]:
        """Return the names of all columns, or of those inside one."""
        kind = self._type_at(path)
        if kind is self._schema:
            return list(kind.names)
        return [kind.field(place).name for place in range(kind.num_fields)]

    def check_outputs(self, paths: Sequence[Path], model: ModelFormat, fields: RecordFields) -> Problem | None:
        """Say why the columns at some paths hold no outputs of a model."""
        for path in paths:
            kind = self._type_at(path)
            is_single = fields.class_columns is not None or model.kind is Kind.SCORE
            if is_single and is_number(self._types, kind):
                continue
            if not is_single and is_list(self._types, kind) and is_number(self._types, kind.value_type):
                continue
            if not is_single and self._types.is_struct(kind):
                return self._problem_of_struct(kind, model)
            wanted = "a column of numbers" if is_single else "a column of lists of numbers"
            return Problem(Reason.WRONG_TYPE, f"{wanted} {join_path(path)}", _type_name(kind))
        return None

    def check_values(self, path: Path, reason: Reason) -> Problem | None:
        """Say why a column holds neither texts, nor numbers, nor times."""
        kind = self._type_at(path)
        types = self._types
        if types.is_dictionary(kind):
            kind = kind.value_type
        texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        times = types.is_timestamp(kind) and reason is Reason.BAD_TIMESTAMP
        if texts or times or types.is_null(kind) or is_number(types, kind):
            return None
        return Problem(reason, f"a column of texts or numbers {join_path(path)}", _type_name(kind))

    def outputs(self, batch: Any, paths: Sequence[Path], model: ModelFormat) -> Vectors:  # noqa: ANN401
        """Return the outputs of a model in a batch."""
        columns = [self._column(batch, path) for path in paths]
        if is_list(self._types, columns[0].type):
            flat, lengths, null = vectors_in(columns[0])
            return Vectors(flat, lengths, null)
        null = nulls_in(columns[0])
        if self._types.is_struct(columns[0].type):
            columns = [self._inside(columns[0], name) for name in model.classes]
        matrix = np.column_stack([floats_in(column) for column in columns])
        null = null | any_in_row(np.column_stack([nulls_in(column) for column in columns]))
        return Vectors(matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64), null)

    def values(self, batch: Any, path: Path, *, whole: bool = False) -> Values:  # noqa: ANN401
        """Return a column as texts and numbers; where texts must be whole, a very long one becomes something else."""
        column = self._column(batch, path)
        compute = import_module("pyarrow.compute")
        if self._types.is_dictionary(column.type):
            # Cut short before they are repeated.
            texts = self._listed(self._cut(column.dictionary, compute))
            values = [None if place is None else texts[place] for place in column.indices.to_pylist()]
        else:
            values = self._listed(self._cut(column, compute))
        if whole:
            return [() if isinstance(one, str) and len(one) > LONGEST_TEXT else one for one in values]
        return values

    def times(self, batch: Any, path: Path, fields: RecordFields) -> Values:  # noqa: ANN401
        """Return a column of times, as numbers in the declared unit where the file has times of its own."""
        column = self._column(batch, path)
        if not self._types.is_timestamp(column.type):
            return self.values(batch, path)
        compute = import_module("pyarrow.compute")
        if column.type.tz is None and fields.time_zone is None:
            return ["a time without a zone"] * len(column)
        if column.type.tz is None:
            column = compute.assume_timezone(column, fields.time_zone, ambiguous="earliest", nonexistent="latest")
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        counts = column.cast(self._arrow.int64()).to_pylist()
        factor = fields.time_unit.per_second / per_second
        return [None if count is None else count * factor for count in counts]

    def _cut(self, column: Any, compute: Any) -> Any:  # noqa: ANN401
        if is_number(self._types, column.type) or self._types.is_null(column.type):
            return column
        return compute.utf8_slice_codeunits(column, 0, LONGEST_TEXT + 1)

    def _listed(self, column: Any) -> list[object]:  # noqa: ANN401
        values: list[object] = column.to_pylist()
        if not (self._types.is_float32(column.type) or self._types.is_float16(column.type)):
            return values
        single = np.float32 if self._types.is_float32(column.type) else np.float16
        return [None if value is None else shortest(single(value)) for value in values]  # type: ignore[arg-type]

    def _type_at(self, path: Path) -> Any:  # noqa: ANN401
        kind = self._schema
        for depth, name in enumerate(path):
            if depth and not self._types.is_struct(kind):
                return None
            names = kind.names if not depth else [kind.field(place).name for place in range(kind.num_fields)]
            if names.count(name) != 1:
                return None
            kind = kind.field(names.index(name)).type
        return kind

    def _column(self, batch: Any, path: Path) -> Any:  # noqa: ANN401
        column = batch.column(path[0])
        for name in path[1:]:
            column = self._inside(column, name)
        return column

    def _inside(self, column: Any, name: str) -> Any:  # noqa: ANN401
        # Where an object is null, so is all that it holds.
        place = column.type.get_field_index(name)
        return import_module("pyarrow.compute").struct_field(column, [place])

    def _problem_of_struct(self, kind: Any, model: ModelFormat) -> Problem | None:  # noqa: ANN401
        fields = [kind.field(place) for place in range(kind.num_fields)]
        expected = f"one column of numbers for each of the {len(model.classes)} classes"
        if sorted(field.name for field in fields) != sorted(model.classes):
            return Problem(Reason.UNKNOWN_CLASS, expected, f"{len(fields)} others")
        if not all(is_number(self._types, field.type) for field in fields):
            return Problem(Reason.WRONG_TYPE, expected, "something else in one of them")
        return None


def _type_name(kind: Any) -> str:  # noqa: ANN401
    # Not in full: a type may hold the names of fields.
    return "none" if kind is None else str(kind).partition("<")[0][:40]
