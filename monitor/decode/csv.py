"""CSV with a header: a column of JSON arrays, or one column a class; cells are converted many at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.decode.batch import Decoded
from monitor.decode.csv_rows import CsvRows, Rows
from monitor.decode.intake import Intake
from monitor.decode.json_values import load, problem_of_output
from monitor.decode.json_vectors import add_vectors, decode_vector
from monitor.decode.labels import Indices
from monitor.decode.layout import Kind, Layout, find_class_columns
from monitor.decode.rejections import Problem, Reason, listed


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which cells of a row are wanted."""

    numbers: tuple[int, ...]
    """Cells that hold one number each; empty when a single cell holds them all."""
    array: int | None
    label: int | None


def read_csv(path: Path, layout: Layout) -> Decoded:
    """Read a whole CSV file."""
    rows = CsvRows(path)
    intake = Intake(layout, str(path), "line", labelled=layout.label_field is not None)
    plan = _plan([name.strip() for name in rows.header], layout, intake)
    if isinstance(plan, Problem):
        raise plan.of_file(path)
    for chunk in rows.chunks(intake.reject):
        if plan.array is None:
            _take_numbers(chunk, plan, intake)
        else:
            _take_arrays(chunk, plan.array, plan, layout, intake)
    return intake.finish()


def _plan(header: list[str], layout: Layout, intake: Intake) -> _Plan | Problem:
    if layout.class_columns is not None:
        found = find_class_columns(layout, header)
        if isinstance(found, Problem):
            is_missing = found.reason is Reason.MISSING_FIELD
            return missing_columns(layout.class_columns, header, found) if is_missing else found
        if found.classes is not None:
            intake.fix_classes(found.classes)
        wanted = found.columns
    else:
        wanted = (layout.field or "",)
    labels = () if layout.label_field is None else (layout.label_field,)
    times = Counter(header)
    if absent := tuple(name for name in (*wanted, *labels) if not times[name]):
        return missing_columns(absent, header, None)
    if twice := [name for name in (*wanted, *labels) if times[name] > 1]:
        return Problem(Reason.BAD_HEADER, f"one column named {twice[0]}", f"{times[twice[0]]}")
    place_of = {name: place for place, name in enumerate(header)}
    places = tuple(place_of[name] for name in wanted)
    label = None if layout.label_field is None else place_of[layout.label_field]
    is_array = layout.class_columns is None and layout.kind is not Kind.SCORE
    return _Plan(() if is_array else places, places[0] if is_array else None, label)


def missing_columns(wanted: tuple[str, ...], header: Sequence[str], otherwise: Problem | None) -> Problem:
    """Say that columns are missing, and what the header looks like instead."""
    expected = f"a header with the column{'s' if len(wanted) > 1 else ''} {listed(wanted)}"
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if any(separator in cell for cell in header):
            return Problem(Reason.BAD_HEADER, "commas between the cells", f"{name}: save it with commas")
    if all(is_number(cell) for cell in header):
        return Problem(Reason.BAD_HEADER, expected, "a first line of numbers")
    alike = tuple(name for name in header if name.startswith("prob_"))
    if otherwise is None and len(alike) > 1 and wanted[0] == "probs":
        return Problem(Reason.BAD_HEADER, expected, f"columns {listed(alike)}: add --class-columns 'prob_*'")
    # Not the names: a file without a header has a patient's values in their place.
    found = f"a first line of {len(header)} other cells"
    return Problem(Reason.BAD_HEADER, expected if otherwise is None else otherwise.expected, found)


def _take_numbers(chunk: Rows, plan: _Plan, intake: Intake) -> None:
    numbers, rows = chunk
    cells = [[row[place] for place in plan.numbers] for row in rows]
    try:
        if not all(are_plain("".join(row)) for row in cells):
            raise ValueError  # noqa: TRY301
        matrix = np.array(cells, dtype=np.float64)
        kept: Sequence[int] = range(len(rows))
    except ValueError:
        kept = []
        for place, row in enumerate(cells):
            odd = next((cell for cell in row if not is_number(cell)), None)
            if odd is None:
                kept.append(place)
            else:
                intake.reject(numbers[place], no_number(odd))
        matrix = np.array([cells[place] for place in kept], dtype=np.float64).reshape(-1, len(plan.numbers))
    intake.add_matrix(np.array(numbers, dtype=np.int64)[list(kept)], matrix, _labels(rows, kept, plan))


def _take_arrays(chunk: Rows, array: int, plan: _Plan, layout: Layout, intake: Intake) -> None:
    numbers, rows = chunk
    kept: list[int] = []
    vectors = []
    for place, row in enumerate(rows):
        try:
            vectors.append(decode_vector(row[array]))
            kept.append(place)
        except (ValueError, RecursionError):
            intake.reject(numbers[place], problem_of_array(row[array], layout.kind))
    lines: Indices = np.array(numbers, dtype=np.int64)[kept]
    add_vectors(intake, lines, vectors, _labels(rows, kept, plan))


def _labels(rows: list[list[str]], kept: Sequence[int], plan: _Plan) -> list[object] | None:
    return None if plan.label is None else [rows[place][plan.label].strip() for place in kept]


def problem_of_array(cell: str, kind: Kind) -> Problem:
    """Say why a cell holds no vector."""
    expected = "a JSON array of numbers"
    if not cell.strip():
        return Problem(Reason.WRONG_TYPE, expected, "an empty cell")
    value = load(cell, expected)
    problem = value if isinstance(value, Problem) else problem_of_output(value, kind)
    return problem or Problem(Reason.BAD_JSON, expected, "something else")


def is_number(cell: str) -> bool:
    """Tell whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return are_plain(cell)


def are_plain(cells: str) -> bool:
    """Tell whether the numbers in some cells, if they are any, are written as others than Python write them too."""
    return cells.isascii() and "_" not in cells


def no_number(cell: str) -> Problem:
    """Say why a cell holds no number."""
    if not cell.strip():
        return Problem(Reason.WRONG_TYPE, "a number", "an empty cell")
    if is_number(cell.replace(",", ".")):
        return Problem(Reason.WRONG_TYPE, "a number with a decimal point", "a decimal comma")
    return Problem(Reason.WRONG_TYPE, "a number", f"a text of {len(cell)} characters")
