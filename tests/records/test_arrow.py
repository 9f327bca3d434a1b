"""Parquet and Arrow files: types, nulls, lists of different lengths, damage, and a missing pyarrow."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.errors import InvalidInput
from monitor.records.offline import offline_schema, read_file
from monitor.records.record_schema import OutputKind, RecordSchema
from tests.records.record_files import GOOD, reasons, reported, write_table

NAMES = ("a.parquet", "a.arrow", "a.feather", "a.ipc")
LABELLED = offline_schema(label_field="label")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)],
    ids=["list", "large", "fixed"],
)
def test_43_nulls_are_rejected_row_by_row(name: str, kind: Any, tmp_path: Path) -> None:
    """A null vector, or a null in one."""
    vectors = pa.array([GOOD, None, [0.5, None, 0.5], GOOD, [float("nan"), 0, 1]], kind)
    labels = pa.array([0, 1, 2, None, 1])
    decoded = read_file(write_table(tmp_path / name, {"probs": vectors, "label": labels}), LABELLED)
    assert reported(decoded) == [
        "row 2: expected a number, found null (wrong_type)",
        "row 3: expected a number, found null (wrong_type)",
        "row 4: expected a class name or index, found null (wrong_type)",
        "row 5: expected finite numbers, found nan (not_finite)",
    ]
    np.testing.assert_allclose(decoded.records.vectors, [GOOD], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("columns", "layout", "message"),
    [
        pytest.param(
            {"p": [GOOD]},
            offline_schema(),
            r"one column named probs, found columns p \(missing_field\)",
            id="no vector",
        ),
        pytest.param({"probs": [GOOD]}, LABELLED, "one column named label, found columns probs", id="no label"),
        pytest.param(
            {"probs": [["0.5"]]}, offline_schema(), "a column of lists of numbers probs, found list<", id="17"
        ),
        pytest.param({"probs": [[True]]}, offline_schema(), "a column of lists of numbers probs, found list<", id="18"),
        pytest.param({"probs": [0.5]}, offline_schema(), "a column of lists of numbers probs, found double", id="12"),
        pytest.param({"probs": [[GOOD]]}, offline_schema(), "a column of lists of numbers probs, found list<", id="16"),
        pytest.param(
            {"score": [GOOD]}, offline_schema(OutputKind.SCORE), "a column of numbers score, found list<", id="no score"
        ),
        pytest.param(
            {"p_a": [0.5], "p_b": ["x"]}, offline_schema(class_columns=("p_*",)), "a column of numbers p_b", id="text"
        ),
        pytest.param(
            {"p_a": [0.5]}, offline_schema(class_columns=("p_*",)), "columns named p_…, found 1 among 1", id="one class"
        ),
    ],
)
def test_columns_that_are_missing_or_of_another_type_fail_the_file(
    name: str, columns: dict[str, Any], layout: RecordSchema, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_file(write_table(tmp_path / name, columns), layout)


@pytest.mark.parametrize("name", NAMES)
def test_class_columns_and_scores_are_numbers(name: str, tmp_path: Path) -> None:
    """One column per class, integers or floats; nulls are rejected."""
    columns = {"p_cat": pa.array([1, 0, None]), "p_dog": pa.array([0.0, 1.0, 1.0]), "label": ["cat", "dog", "dog"]}
    path = write_table(tmp_path / name, columns)
    decoded = read_file(path, offline_schema(class_columns=("p_*",), label_field="label"))
    assert decoded.records.vectors.tolist() == [[1, 0], [0, 1]]
    assert (decoded.classes, reasons(decoded)) == (("cat", "dog"), ["wrong_type"])
    assert read_file(path, offline_schema(OutputKind.SCORE, "p_dog")).records.vectors.tolist() == [
        [1, 0],
        [0, 1],
        [0, 1],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_many_batches_and_categories_are_read_in_order(name: str, tmp_path: Path) -> None:
    """Rows keep their numbers across batches, and labels may be dictionary-encoded."""
    count = 10_000
    scores = np.linspace(0, 1, count)
    scores[9_000] = 5
    labels = pa.array(["well", "ill"] * (count // 2)).dictionary_encode()
    path = write_table(tmp_path / name, {"score": scores, "label": labels})
    decoded = read_file(path, offline_schema(OutputKind.SCORE, label_field="label", classes=("well", "ill")))
    assert reported(decoded) == ["row 9001: expected a score of at most 1, found 5 (above_one)"]
    np.testing.assert_array_equal(decoded.records.vectors[:, 1], np.delete(scores, 9_000).astype(np.float32))
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == np.delete(np.arange(count) % 2, 9_000).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_fails_as_a_whole(name: str, tmp_path: Path) -> None:
    """Truncated anywhere, empty, or of another format."""
    path = write_table(tmp_path / name, {"probs": [GOOD] * 50})
    content = path.read_bytes()
    for damaged in (b"", b"probs\n", content[:10], content[: len(content) // 2], content[: len(content) * 9 // 10 - 8]):
        path.write_bytes(damaged)
        with pytest.raises(
            InvalidInput, match=r"expected a Parquet or Arrow file, as its name says, found .*\(bad_file\)"
        ):
            read_file(path, offline_schema())


def test_42_a_parquet_file_of_too_many_rows_is_rejected_unread(tmp_path: Path) -> None:
    """A small file may declare millions of rows."""
    path = write_table(tmp_path / "a.parquet", {"score": np.zeros(1000)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monitor.records.formats.arrow.MAX_ROWS", 100)
        with pytest.raises(InvalidInput, match=r"expected at most 100 rows, found 1,000 \(too_large\)"):
            read_file(path, offline_schema(OutputKind.SCORE))


@pytest.mark.parametrize("name", NAMES)
def test_without_pyarrow_the_message_names_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_table(tmp_path / name, {"probs": [GOOD]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'cpcmon\[parquet\]'"):
        read_file(path, offline_schema())


@pytest.mark.parametrize("name", NAMES)
def test_25_a_column_name_that_is_not_utf_8_fails_the_file(name: str, tmp_path: Path) -> None:
    """Pyarrow opens such a file, and raises only when the name is read."""
    path = write_table(tmp_path / name, {"probs": [GOOD], "zzzz": [1]})
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"zz\xffz"))
    with pytest.raises(InvalidInput, match="as its name says, found 'utf-8' codec can't decode"):
        read_file(path, offline_schema())
