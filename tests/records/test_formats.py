"""The same records in every format give the same columns and the same rejections."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidInput
from monitor.records.offline_files import accept, offline_schema, read_file
from monitor.records.record_schema import OutputKind
from tests.records.record_files import GOOD, RAGGED_SUFFIXES, SUFFIXES, read_bytes, reasons, write_records, write_table

LABELLED = offline_schema(label_field="label")
RANDOM = np.random.default_rng(11)
VECTORS = RANDOM.dirichlet(np.ones(5), 500)
LABELS = RANDOM.integers(0, 5, 500)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_round_trip_gives_equal_columns(suffix: str, tmp_path: Path) -> None:
    expected = accept(VECTORS, LABELLED, LABELS).records
    decoded = read_file(write_records(tmp_path, suffix, VECTORS.tolist(), LABELS.tolist()), LABELLED)
    batch = decoded.records
    np.testing.assert_array_equal(batch.vectors, expected.vectors)
    assert batch.labels is not None
    np.testing.assert_array_equal(batch.labels, LABELS)
    assert (decoded.classes, batch.normalised) == (("0", "1", "2", "3", "4"), 0)
    assert batch.vectors.dtype == np.float32
    assert batch.labels.dtype == np.int64
    assert batch.vectors.flags.c_contiguous


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_labels_are_read_only_on_request(suffix: str, tmp_path: Path) -> None:
    """An invalid label has no effect otherwise."""
    decoded = read_file(write_records(tmp_path, suffix, VECTORS.tolist(), ["?"] * 500), offline_schema())
    assert (decoded.records.labels, decoded.rejections.total) == (None, 0)


@pytest.mark.parametrize("suffix", RAGGED_SUFFIXES)
@pytest.mark.parametrize(
    ("vector", "label", "reason"),
    [
        pytest.param(GOOD, 2, None, id="good"),
        pytest.param([0.333, 0.333, 0.333], 2, None, id="5"),
        pytest.param([1.0], 0, "wrong_k", id="8 one class"),
        pytest.param(GOOD, 3, "label_out_of_range", id="47"),
        pytest.param(GOOD, -1, "label_out_of_range", id="47 negative"),
        pytest.param([0.5, 0.4, 0.2], 3, "bad_sum", id="the vector comes first"),
    ],
)
def test_all_formats_agree_on_a_record(
    suffix: str, vector: Any, label: int, reason: str | None, tmp_path: Path
) -> None:
    """Also on its label; `test_c_records` has the rules on vectors."""
    decoded = read_file(write_records(tmp_path, suffix, [GOOD, vector, GOOD], [0, label, 1]), LABELLED)
    assert reasons(decoded) == ([] if reason is None else [reason])
    place = "line 3" if suffix == ".csv" else "line 2" if suffix == ".jsonl" else "row 2"
    assert [rejection.place for rejection in decoded.rejections.first] == ([] if reason is None else [place])
    expected = [GOOD, vector, GOOD] if reason is None else [GOOD, GOOD]
    np.testing.assert_array_equal(decoded.records.vectors, accept(np.array(expected), offline_schema()).records.vectors)
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == ([0, label, 1] if reason is None else [0, 1])


@pytest.mark.parametrize("suffix", RAGGED_SUFFIXES)
def test_the_first_valid_record_sets_the_number_of_classes(suffix: str, tmp_path: Path) -> None:
    """Invalid records before it keep their own reasons."""
    vectors = [[0.9, 0.9], [0.1, 0.1, 0.1, 0.1], GOOD, [0.5, 0.5], [9.0, 9.0], GOOD]
    decoded = read_file(write_records(tmp_path, suffix, vectors), offline_schema())
    assert reasons(decoded) == ["bad_sum", "bad_sum", "wrong_k", "wrong_k"]
    assert decoded.records.vectors.shape == (2, 3)


@pytest.mark.parametrize("suffix", RAGGED_SUFFIXES)
def test_given_classes_set_the_number_of_classes(suffix: str, tmp_path: Path) -> None:
    path = write_records(tmp_path, suffix, [GOOD, [0.5, 0.5]])
    decoded = read_file(path, offline_schema(classes=("well", "ill")))
    assert (reasons(decoded), decoded.records.vectors.tolist()) == (["wrong_k"], [[0.5, 0.5]])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_accepted_records_is_an_empty_batch(suffix: str, tmp_path: Path) -> None:
    """All rejections are counted, five are reported; the caller decides."""
    decoded = read_file(write_records(tmp_path, suffix, (VECTORS * 2 + 1).tolist(), LABELS.tolist()), LABELLED)
    assert decoded.records.vectors.shape == (0, 0)
    assert decoded.records.labels is not None
    assert (len(decoded.records.labels), decoded.classes) == (0, ())
    assert (decoded.rejections.total, len(decoded.rejections.first)) == (500, 5)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".npz", ".parquet", ".ipc"])
@pytest.mark.parametrize("kind", [OutputKind.LOGITS, OutputKind.PERCENT, OutputKind.LOGPROB])
def test_a_declared_kind_is_converted_in_every_format(suffix: str, kind: OutputKind, tmp_path: Path) -> None:
    given_as = {
        OutputKind.LOGITS: np.log(VECTORS) + 3,
        OutputKind.PERCENT: VECTORS * 100,
        OutputKind.LOGPROB: np.log(VECTORS),
    }[kind]
    path = write_records(tmp_path, suffix, given_as.tolist())
    decoded = read_file(path, offline_schema(kind, "probs"))
    np.testing.assert_allclose(decoded.records.vectors, VECTORS, atol=1e-7)


def test_class_columns_of_json_lines_are_found_in_the_first_object(tmp_path: Path) -> None:
    """Fields with the prefix are the classes, in the order of the first record with them."""
    content = b'oops\n{"id": 1}\n{"p_cat": 0.7, "p_dog": 0.3, "p": 1}\n{"p_dog": 1, "p_cat": 0}\n{"p_cat": 1}\n{"p_cat": true, "p_dog": 0}'
    decoded = read_bytes(tmp_path, "a.jsonl", content, offline_schema(class_columns=("p_*",)))
    np.testing.assert_allclose(decoded.records.vectors, [[0.7, 0.3], [0.0, 1.0]], rtol=1e-6)
    assert decoded.classes == ("cat", "dog")
    assert reasons(decoded) == ["bad_json", "missing_field", "missing_field", "wrong_type"]
    none = read_bytes(tmp_path, "a.jsonl", b'{"a": 1}\n' * 200, offline_schema(class_columns=("p_*",)))
    assert dict(none.rejections.reasons) == {"missing_field": 200}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow"])
def test_dotted_paths_name_nested_fields_offline(suffix: str, tmp_path: Path) -> None:
    """Of outputs, labels and class columns."""
    path = tmp_path / f"a{suffix}"
    outputs = [{"probs": GOOD, "p_cat": 0.7, "p_dog": 0.2, "p_owl": 0.1}] * 3
    labels = [{"label": label} for label in (0, 2, 1)]
    if suffix == ".jsonl":
        records = [{"output": one, "truth": label} for one, label in zip(outputs, labels, strict=True)]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        write_table(path, {"output": outputs, "truth": labels})
    nested: list[dict[str, Any]] = [{"vector_field": "output.probs"}, {"class_columns": ("output.p_*",)}]
    for words in nested:
        decoded = read_file(path, offline_schema(label_field="truth.label", **words))
        np.testing.assert_array_equal(decoded.records.vectors, np.array([GOOD] * 3, dtype=np.float32))
        assert decoded.records.labels is not None
        assert decoded.records.labels.tolist() == [0, 2, 1]
    assert decoded.classes == ("cat", "dog", "owl")


def test_lines_across_blocks_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep their numbers."""
    whole = read_file(write_records(tmp_path, ".jsonl", VECTORS[:50].tolist()), offline_schema()).records.vectors
    for size in (1, 7, 100, 101, 4096):
        monkeypatch.setattr("monitor.records.formats.text.PIECE_BYTES", size)
        for suffix in (".jsonl", ".csv"):
            path = write_records(tmp_path, suffix, VECTORS[:50].tolist())
            path.write_bytes(path.read_bytes() + b"oops")
            decoded = read_file(path, offline_schema())
            np.testing.assert_array_equal(decoded.records.vectors, whole)
            assert [rejection.place for rejection in decoded.rejections.first] == [f"line {51 + (suffix == '.csv')}"]


PARTS = st.sampled_from(
    [b'{"probs": ', b"[0.5, 0.5]", b"}", b"\n", b",", b'"', b"NaN", b"{", b"\xff", b"\0", b"1e999", b"label"]
)


@given(lines=st.lists(st.binary(max_size=12) | st.lists(PARTS, max_size=6).map(b"".join), max_size=60))
def test_any_bytes_are_accepted_rejected_or_blank(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """No line of a text file is lost or stops the reader."""
    # Longer than the prefix that identifies UTF-16 and UTF-32, which are rejected as a whole.
    content = b"none\n" + b"\n".join(line.replace(b"\n", b" ") for line in lines)
    decoded = read_bytes(tmp_path_factory.getbasetemp(), "fuzz.jsonl", content)
    filled = [line for line in content.split(b"\n") if line and not line.isspace()]
    assert len(decoded.records.vectors) + decoded.rejections.total == len(filled)
    columns = read_bytes(tmp_path_factory.getbasetemp(), "fuzz.csv", b"probs\n" + content)
    # In CSV a line with a carriage return is not blank.
    written = [line for line in content.split(b"\n") if line]
    assert len(columns.records.vectors) + columns.rejections.total <= len(written)


def test_a_file_that_would_fill_the_memory_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any format."""
    monkeypatch.setattr("monitor.records.offline_files.MAX_NUMBERS", 100)
    for suffix in SUFFIXES:
        with pytest.raises(InvalidInput, match=r"expected at most 100 numbers, found more \(too_large\)"):
            read_file(write_records(tmp_path, suffix, VECTORS.tolist()), offline_schema())


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".jsonl", ".parquet"])
def test_names_may_start_or_end_with_a_dot_offline(suffix: str, tmp_path: Path) -> None:
    """Such a text is not a path, so that it is the name of one column."""
    path = tmp_path / f"a{suffix}"
    columns = {".pred_cat": [0.7, 0.2], ".pred_dog": [0.3, 0.8], "truth.": [0, 1]}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    match suffix:
        case ".csv":
            rows = [",".join(map(str, row)) for row in (columns, *(record.values() for record in records))]
            path.write_text("".join(f"{row}\n" for row in rows))
        case ".npz":
            arrays: dict[str, Any] = {name: np.array(column) for name, column in columns.items()}
            np.savez(path, **arrays)
        case ".jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        case _:
            write_table(path, columns)
    for class_columns in ((".pred_*",), (".pred_cat", ".pred_dog")):
        decoded = read_file(path, offline_schema(class_columns=class_columns, label_field="truth."))
        np.testing.assert_allclose(decoded.records.vectors, [[0.7, 0.3], [0.2, 0.8]], rtol=1e-6)
        assert decoded.records.labels is not None
        assert decoded.records.labels.tolist() == [0, 1]
    scores = read_file(path, offline_schema(OutputKind.SCORE, ".pred_dog", label_field="truth."))
    np.testing.assert_allclose(scores.records.vectors, [[0.7, 0.3], [0.2, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".jsonl", ".parquet"])
def test_a_label_with_the_prefix_is_not_a_class(suffix: str, tmp_path: Path) -> None:
    """Neither as a column of a flat file nor in the nested object of the classes."""
    path = tmp_path / f"a{suffix}"
    record = {"prob_cat": 0.7, "prob_dog": 0.3, "prob_true": 1}
    match suffix:
        case ".csv":
            path.write_text("m.prob_cat,m.prob_dog,m.prob_true\n0.7,0.3,1\n")
        case ".npz":
            arrays: dict[str, Any] = {f"m.{name}": np.array([value]) for name, value in record.items()}
            np.savez(path, **arrays)
        case ".jsonl":
            path.write_text(json.dumps({"m": record}) + "\n")
        case _:
            write_table(path, {"m": [record]})
    decoded = read_file(path, offline_schema(class_columns=("m.prob_*",), label_field="m.prob_true"))
    assert decoded.classes == ("cat", "dog")
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [1]


def test_a_class_may_be_named_as_a_label_elsewhere(tmp_path: Path) -> None:
    content = b'{"m": {"prob_cat": 0.7, "prob_true": 0.3}, "prob_true": 1}'
    layout = offline_schema(class_columns=("m.prob_*",), label_field="prob_true")
    assert read_bytes(tmp_path, "a.jsonl", content, layout).classes == ("cat", "true")
