"""Classes in another order are put into the order of the reference, by name."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.errors import InvalidInput
from monitor.records.offline import accept, offline_schema, read_file
from monitor.records.record_schema import RecordSchema
from tests.records.record_files import reported, write_table

NUMBERED = tuple(str(index) for index in range(11))
NAMED = ("wolf", "bear", "lynx", "yak", "ape", "cat", "dog", "emu", "owl", "asp", "ox")
VECTORS = np.random.default_rng(7).dirichlet(np.ones(11), 40)
"""One row per record and one column per class, in natural order."""
LABELS = np.arange(40) % 11

Columns = dict[str, np.ndarray]
Names = tuple[str, ...]


def _class_columns(columns: Columns) -> Columns:
    return {f"prob_{name}": column for name, column in columns.items()}


def _csv(path: Path, columns: Columns, labels: list[str]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*_class_columns(columns), "label"])
        rows.writerows(zip(*(column.tolist() for column in columns.values()), labels, strict=True))


def _csv_objects(path: Path, columns: Columns, labels: list[str]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["probs", "label"])
        rows.writerows(zip(map(json.dumps, _objects(columns)), labels, strict=True))


def _jsonl(path: Path, columns: Columns, labels: list[str]) -> None:
    records = zip(_objects(_class_columns(columns)), labels, strict=True)
    path.write_text("".join(json.dumps({**record, "label": label}) + "\n" for record, label in records))


def _jsonl_objects(path: Path, columns: Columns, labels: list[str]) -> None:
    records = zip(_objects(columns), labels, strict=True)
    path.write_text("".join(json.dumps({"probs": record, "label": label}) + "\n" for record, label in records))


def _npz(path: Path, columns: Columns, labels: list[str]) -> None:
    arrays: dict[str, Any] = {**_class_columns(columns), "label": np.array(labels)}
    np.savez(path, **arrays)


def _npz_names(path: Path, columns: Columns, labels: list[str]) -> None:
    _npz_matrix(path, columns, labels, np.array(list(columns)))


def _npz_integers(path: Path, columns: Columns, labels: list[str]) -> None:
    _npz_matrix(path, columns, labels, np.array([int(name) for name in columns]))


def _npz_bytes(path: Path, columns: Columns, labels: list[str]) -> None:
    _npz_matrix(path, columns, labels, np.array([int(name) for name in columns], dtype=np.uint8))


def _npz_matrix(path: Path, columns: Columns, labels: list[str], names: np.ndarray) -> None:
    np.savez(path, probs=np.column_stack(list(columns.values())), label=np.array(labels), classes=names)


def _arrow(path: Path, columns: Columns, labels: list[str]) -> None:
    write_table(path, {**_class_columns(columns), "label": labels})


def _objects(columns: Columns) -> list[dict[str, float]]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


Writer = Callable[[Path, Columns, list[str]], None]

COLUMN_FORMATS = [
    pytest.param(_csv, ".csv", id="csv"),
    pytest.param(_jsonl, ".jsonl", id="jsonl"),
    pytest.param(_npz, ".npz", id="npz"),
    *(pytest.param(_arrow, suffix, id=suffix[1:]) for suffix in (".parquet", ".arrow", ".feather", ".ipc")),
]
NPZ_WITH_NAMES = pytest.param(_npz_names, ".npz", id="npz names")
OBJECT_FORMATS = [
    pytest.param(_csv_objects, ".csv", id="csv objects"),
    pytest.param(_jsonl_objects, ".jsonl", id="jsonl objects"),
]
INTEGER_FORMATS = [
    pytest.param(_npz_integers, ".npz", id="npz integers"),
    pytest.param(_npz_bytes, ".npz", id="npz unsigned"),
]


def _write(path: Path, write: Writer, natural: Names, order: Names) -> Path:
    """Write all records with their classes in an order; those of the vectors are named `natural`."""
    columns = {name: VECTORS[:, natural.index(name)] for name in order}
    write(path, columns, [natural[index] for index in LABELS])
    return path


def _layout(write: Writer, classes: Names | None) -> RecordSchema:
    has_columns = write in {_csv, _jsonl, _npz, _arrow}
    return offline_schema(class_columns=("prob_*",) if has_columns else None, label_field="label", classes=classes)


def _check_order(write: Writer, suffix: str, natural: Names, folder: Path) -> None:
    lexical = tuple(sorted(natural))
    assert lexical != natural
    for expected in (natural, lexical, natural[::-1]):
        places = [natural.index(name) for name in expected]
        probabilities = accept(VECTORS[:, places], offline_schema()).records.vectors
        for order in (natural, lexical, natural[::-1]):
            path = _write(folder / f"a{suffix}", write, natural, order)
            decoded = read_file(path, _layout(write, expected))
            assert (reported(decoded), decoded.classes) == ([], expected)
            np.testing.assert_array_equal(decoded.records.vectors, probabilities)
            assert decoded.records.labels is not None
            assert decoded.records.labels.tolist() == [places.index(index) for index in LABELS.tolist()]


@pytest.mark.parametrize(("write", "suffix"), [*COLUMN_FORMATS, NPZ_WITH_NAMES, *INTEGER_FORMATS, *OBJECT_FORMATS])
def test_numbered_classes_in_lexical_order_are_not_mistaken_for_others(
    write: Writer, suffix: str, tmp_path: Path
) -> None:
    """Columns 0, 1, 10, 2 give the same outputs as 0, 1, 2, 10, whichever is expected."""
    _check_order(write, suffix, NUMBERED, tmp_path)


@pytest.mark.parametrize(("write", "suffix"), [*COLUMN_FORMATS, NPZ_WITH_NAMES, *OBJECT_FORMATS])
def test_named_classes_may_be_in_any_order(write: Writer, suffix: str, tmp_path: Path) -> None:
    _check_order(write, suffix, NAMED, tmp_path)


@pytest.mark.parametrize(("write", "suffix"), [*COLUMN_FORMATS, NPZ_WITH_NAMES, *INTEGER_FORMATS])
def test_classes_taken_from_a_file_in_lexical_order_fit_one_in_natural_order(
    write: Writer, suffix: str, tmp_path: Path
) -> None:
    """The order of the first file becomes that of the reference."""
    lexical = tuple(sorted(NUMBERED))
    first = read_file(_write(tmp_path / f"a{suffix}", write, NUMBERED, lexical), _layout(write, None))
    assert first.classes == lexical
    second = read_file(_write(tmp_path / f"b{suffix}", write, NUMBERED, NUMBERED), _layout(write, first.classes))
    np.testing.assert_array_equal(second.records.vectors, first.records.vectors)
    assert first.records.labels is not None
    assert second.records.labels is not None
    assert second.records.labels.tolist() == first.records.labels.tolist()


@pytest.mark.parametrize(("write", "suffix"), [*COLUMN_FORMATS, NPZ_WITH_NAMES])
def test_a_reference_without_names_takes_the_order_of_the_file(write: Writer, suffix: str, tmp_path: Path) -> None:
    """Names other than the reference's numbers have no order of their own."""
    path = _write(tmp_path / f"a{suffix}", write, NAMED, NAMED)
    layout = offline_schema(class_columns=_layout(write, None).fields.class_columns, classes=NUMBERED)
    decoded = read_file(path, layout)
    np.testing.assert_array_equal(decoded.records.vectors, accept(VECTORS, offline_schema()).records.vectors)
    assert decoded.classes == NUMBERED


@pytest.mark.parametrize(("write", "suffix"), [*COLUMN_FORMATS, NPZ_WITH_NAMES, *INTEGER_FORMATS])
def test_numbered_classes_do_not_match_named_ones(write: Writer, suffix: str, tmp_path: Path) -> None:
    """Unless the vectors have no names."""
    path = _write(tmp_path / f"a{suffix}", write, NUMBERED, NUMBERED)
    layout = _layout(write, NAMED)
    if suffix == ".jsonl":  # each line is rejected for itself
        decoded = read_file(path, layout)
        assert dict(decoded.rejections.reasons) == {"unknown_class": 40}
        return
    with pytest.raises(InvalidInput, match=r"expected the classes wolf, bear, .* found 0, 1, .*\(unknown_class\)"):
        read_file(path, layout)


@pytest.mark.parametrize(("write", "suffix"), COLUMN_FORMATS)
def test_a_column_that_names_no_class_is_rejected(write: Writer, suffix: str, tmp_path: Path) -> None:
    """A column named by the prefix alone would be a class without a name."""
    names = ("", *NAMED[1:])
    path = _write(tmp_path / f"a{suffix}", write, names, names)
    message = r"expected a class name after 'prob_' in each column, found none in one of them (bad_header)"
    if suffix == ".jsonl":
        decoded = read_file(path, _layout(write, None))
        assert (reported(decoded)[0], decoded.rejections.total) == (f"line 1: {message}", 40)
        return
    with pytest.raises(InvalidInput) as caught:
        read_file(path, _layout(write, None))
    assert str(caught.value) == f"{path}: {message}"


def test_numbers_in_lexical_order_are_not_the_order_of_classes(tmp_path: Path) -> None:
    """A reference of 0 to 10 accepts columns 1 to 11 in this order, but not as 1, 10, 11, 2."""
    shifted = [str(index + 1) for index in range(11)]
    for names, taken in ((shifted, True), (sorted(shifted), False)):
        _csv(tmp_path / "a.csv", dict(zip(names, VECTORS.T, strict=True)), ["0"] * 40)
        layout = offline_schema(class_columns=("prob_*",), classes=NUMBERED)
        if taken:
            np.testing.assert_allclose(read_file(tmp_path / "a.csv", layout).records.vectors, VECTORS, atol=1e-6)
        else:
            with pytest.raises(InvalidInput, match="unknown_class"):
                read_file(tmp_path / "a.csv", layout)
