"""CSV files: headers, quotes, line numbers, and cells that are not numbers."""

import csv
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import InvalidInput
from monitor.records.offline import offline_schema
from monitor.records.record_schema import OutputKind, RecordSchema
from tests.records.record_files import GOOD, read_bytes, reasons, reported

COLUMNS = offline_schema(class_columns=("prob_*",))
LABELLED = offline_schema(class_columns=("prob_*",), label_field="label")
GOOD_ROWS = np.array([GOOD, GOOD], dtype=np.float32)


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        pytest.param("", "a JSON array of numbers, found an empty cell (wrong_type)", id="20"),
        pytest.param(
            "[0.7 0.2 0.1]",
            "a JSON array of numbers, found a syntax error at character 6 (bad_json)",
            id="30 as numpy prints",
        ),
        pytest.param("[0.7,0.2,0.1]", "2 cells, as in the header, found 4 (bad_csv)", id="44 ragged"),
        pytest.param(
            '"[0.7]"x', "quotes in pairs around whole cells, found unbalanced quotes (bad_csv)", id="44 quotes"
        ),
    ],
)
def test_a_bad_cell_rejects_its_own_row(cell: str, sentence: str, tmp_path: Path) -> None:
    """Other rows are kept, and line numbers include the header."""
    good = '"[0.7, 0.2, 0.1]",x\n'
    decoded = read_bytes(tmp_path, "a.csv", f"probs,id\n{good}{cell},x\n{good}".encode())
    assert reported(decoded) == [f"line 3: expected {sentence}"]
    np.testing.assert_array_equal(decoded.records.vectors, GOOD_ROWS)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        pytest.param("True,0,0,0", "a number, found a string of 4 characters (wrong_type)", id="18"),
        pytest.param("0.9,,0.1,0", "a number, found an empty cell (wrong_type)", id="19"),
        pytest.param(
            '"0,9",0.1,0,0', "a number with a decimal point, found a decimal comma (wrong_type)", id="44 decimal comma"
        ),
        pytest.param("1,0,0,emu", "one of the classes cat, dog, owl, found 'emu' (label_out_of_range)", id="47"),
        pytest.param("1,0,0,", "a label, found none (missing_field)", id="20 label"),
    ],
)
def test_a_bad_row_of_class_columns_affects_no_other_row(row: str, sentence: str, tmp_path: Path) -> None:
    """By the same rules as a vector."""
    text = f"prob_cat,prob_dog,prob_owl,label\n0.7,0.2,0.1,dog\n{row}\n0.7,0.2,0.1,1\n"
    decoded = read_bytes(tmp_path, "a.csv", text.encode("latin-1"), LABELLED)
    assert reported(decoded) == [f"line 3: expected {sentence}"]
    np.testing.assert_array_equal(decoded.records.vectors, GOOD_ROWS)
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [1, 1]
    assert decoded.classes == ("cat", "dog", "owl")


def test_unusual_but_valid_text_is_accepted(tmp_path: Path) -> None:
    """A byte order mark, CRLF, blank lines, spaces, and the header of an appended export."""
    text = "\ufeffprob_a, prob_b , label\r\n0.5, 0.5 ,1.0\r\n\r\n   \r\nprob_a, prob_b , label\r\n1,0,a"
    decoded = read_bytes(tmp_path, "a.csv", text.encode(), LABELLED)
    assert decoded.records.vectors.tolist() == [[0.5, 0.5], [1, 0]]
    assert decoded.records.labels is not None
    assert (decoded.records.labels.tolist(), decoded.rejections.total) == ([1, 0], 0)


def test_line_numbers_are_physical_lines_even_after_quoted_newlines(tmp_path: Path) -> None:
    """A rejection has the first line of its row."""
    text = 'note,prob_a,prob_b\n"one\ntwo\n\nthree",1,0\nx,9,9\n"four\nfive",9,9\n\nx,1,0\n"6\n7",a,0\n'
    decoded = read_bytes(tmp_path, "a.csv", text.encode(), COLUMNS)
    assert [rejection.place for rejection in decoded.rejections.first] == ["line 6", "line 7", "line 11"]
    assert len(decoded.records.vectors) == 2


def test_an_unclosed_quote_rejects_its_own_line_only(tmp_path: Path) -> None:
    good = "x,1,0\n" * 300
    for broken in ('"x,1,0\n', 'x,1,"0\n'):
        text = f"note,prob_a,prob_b\n{good}{broken}{good}{broken}y,1,0"
        decoded = read_bytes(tmp_path, "a.csv", text.encode(), COLUMNS)
        assert [rejection.place for rejection in decoded.rejections.first] == ["line 302", "line 603"]
        assert reasons(decoded) == ["bad_csv", "bad_csv"]
        assert len(decoded.records.vectors) == 601


def test_an_invalid_line_inside_quotes_is_rejected_separately(tmp_path: Path) -> None:
    """The unclosed quote and the line with invalid bytes each have their own reason."""
    decoded = read_bytes(tmp_path, "a.csv", b'note,prob_a,prob_b\n"x,1,0\n\xff,1,0\nx",1,0\ny,1,0\n', COLUMNS)
    assert reasons(decoded) == ["bad_csv", "bad_encoding"]
    assert len(decoded.records.vectors) == 2


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    """It is not kept in memory."""
    decoded = read_bytes(tmp_path, "a.csv", b"prob_a,prob_b\n1,0\n1," + b"0" * (17 << 20) + b"\n1,0\n", COLUMNS)
    assert reported(decoded) == ["line 3: expected a line of at most 16 MiB, found a longer one (line_too_long)"]
    assert len(decoded.records.vectors) == 2


def test_wide_cells_are_read_and_the_limit_of_the_csv_module_is_restored(tmp_path: Path) -> None:
    """A vector of 20,000 classes is longer than that limit."""
    before = csv.field_size_limit()
    cell = ", ".join(["5.0000000000e-05"] * 20_000)
    decoded = read_bytes(tmp_path, "a.csv", f'probs\n"[{cell}]"\n'.encode())
    assert decoded.records.vectors.shape == (1, 20_000)
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("text", "layout", "message"),
    [
        pytest.param("", offline_schema(), "expected a header line, found an empty file", id="45 empty"),
        pytest.param("\n\n", offline_schema(), "expected a header line, found an empty file", id="45 blank"),
        pytest.param(
            "0.9,0.1\n", offline_schema(), "with the column probs, found a first line of numbers", id="45 no header"
        ),
        pytest.param(
            "a,b\n",
            offline_schema(),
            "expected a header with the column probs, found a first line of 2 other cells",
            id="45 others",
        ),
        pytest.param(
            "prob_cat,prob_dog\n",
            offline_schema(),
            r"with the column probs, found 2 columns named prob_…: add --class-columns 'prob_\*'",
            id="45 class columns",
        ),
        pytest.param(
            "probs;label\n", offline_schema(), "expected commas between the cells, found semicolons", id="44 semicolons"
        ),
        pytest.param(
            "prob_a;prob_b\n", COLUMNS, "expected commas between the cells, found semicolons", id="44 columns"
        ),
        pytest.param("probs\tlabel\n", offline_schema(), "expected commas between the cells, found tabs", id="44 tabs"),
        pytest.param("probs,probs\n", offline_schema(), "expected one column named probs, found 2", id="45 twice"),
        pytest.param(
            "probs\n",
            offline_schema(label_field="y"),
            "with the column y, found a first line of 1 other cells",
            id="45 no label",
        ),
        pytest.param(
            "prob_a,x\n", COLUMNS, "columns named prob_…, found a first line of 2 other cells", id="45 one class"
        ),
        pytest.param(
            "a,b\n",
            offline_schema(class_columns=("a", "c")),
            "the column c, found a first line of 2 other cells",
            id="45 one missing",
        ),
        pytest.param(
            "prob_a,prob_b\n",
            offline_schema(class_columns=("prob_*",), classes=("a", "c")),
            r"expected the classes a, c, found a, b \(unknown_class\)",
            id="21",
        ),
        pytest.param('"probs\n', offline_schema(), r"a\.csv, line 1: expected quotes in pairs", id="44 quotes"),
    ],
)
def test_a_header_without_required_columns_fails_the_file(
    text: str, layout: RecordSchema, message: str, tmp_path: Path
) -> None:
    """It is reported once, with a remedy."""
    with pytest.raises(InvalidInput, match=message):
        read_bytes(tmp_path, "a.csv", text.encode(), layout)


def test_class_columns_are_put_in_the_order_of_the_classes(tmp_path: Path) -> None:
    """With known names the columns may be in any order; otherwise the reference has the order of the file."""
    text = b"prob_dog,x,prob_cat\n0.8,,0.2\n"
    for classes, expected in ((("cat", "dog"), [0.2, 0.8]), (("dog", "cat"), [0.8, 0.2]), (("0", "1"), [0.8, 0.2])):
        decoded = read_bytes(tmp_path, "a.csv", text, offline_schema(class_columns=("prob_*",), classes=classes))
        np.testing.assert_allclose(decoded.records.vectors, [expected], rtol=1e-6)
        assert decoded.classes == classes


def test_columns_may_be_listed_by_name(tmp_path: Path) -> None:
    """In the given order; their classes are numbered."""
    decoded = read_bytes(tmp_path, "a.csv", b"a,b\n0.8,0.2\n", offline_schema(class_columns=("b", "a")))
    np.testing.assert_allclose(decoded.records.vectors, [[0.2, 0.8]], rtol=1e-6)
    assert decoded.classes == ("0", "1")


def test_scores_are_one_column(tmp_path: Path) -> None:
    """A score is the probability of the second class."""
    decoded = read_bytes(tmp_path, "a.csv", b"score\n0.25\n2\n", offline_schema(OutputKind.SCORE))
    assert decoded.records.vectors.tolist() == [[0.75, 0.25]]
    assert reported(decoded) == ["line 3: expected a score of at most 1, found 2 (above_one)"]
