"""How the offline commands explain rejected lines of JSON; `test_c_records` has every kind of malformed record."""

import json
from pathlib import Path

import numpy as np
import pytest

from monitor.records.offline_files import offline_schema
from monitor.records.record_schema import OutputKind
from tests.records.record_files import GOOD, read_bytes, reasons, reported

THREE = b'{"probs": [0.7, 0.2, 0.1]}'
LABELLED = offline_schema(label_field="label")
CLASSES = offline_schema(classes=("cat", "dog", "owl"))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        pytest.param(b'{"probs": [NaN, 0.5, 0.5]}', "finite numbers, found nan (not_finite)", id="1"),
        pytest.param(b'{"probs": [-0.1, 0.6, 0.5]}', "probabilities of at least 0, found -0.1 (negative)", id="3"),
        pytest.param(b'{"probs": [1.01, 0, 0]}', "probabilities of at most 1, found 1.01 (above_one)", id="4"),
        pytest.param(
            b'{"probs": [0.7, 0.5, 0.5]}', "probabilities that sum to 1, found a sum of 1.7 (bad_sum)", id="6"
        ),
        pytest.param(b'{"probs": [0.5, 0.5]}', "a vector of 3, found a vector of 2 (wrong_k)", id="8"),
        pytest.param(b'{"probs": 0.9}', "a vector of numbers, found 0.9 (not_a_vector)", id="12"),
        pytest.param(b'{"probs": []}', "one number per class, found an empty vector (empty)", id="15"),
        pytest.param(
            b'{"probs": [[0.7, 0.2, 0.1]]}',
            "a vector of numbers, found an array of 3 inside it (not_a_vector)",
            id="16",
        ),
        pytest.param(b'{"probs": ["0.9", 0.1, 0]}', "a number, found a string of 3 characters (wrong_type)", id="17"),
        pytest.param(b'{"probs": [true, 0, 0]}', "a number, found true (wrong_type)", id="18"),
        pytest.param(b'{"p": [0.9, 0.1]}', "a field 'probs', found the fields p (missing_field)", id="20"),
        pytest.param(b"{}", "a field 'probs', found no fields (missing_field)", id="20 nothing"),
        pytest.param(
            b'{"probs": {"cat": 1}}',
            "known class names (set them with --classes), found a vector with names (unknown_class)",
            id="21",
        ),
        pytest.param(
            b'{"probs": [123456789012345678901, 0, 0]}', "at most 1, found 1.23457e+20 (out_of_range)", id="22"
        ),
        pytest.param(
            b'{"probs": [' + b"9" * 5000 + b"]}", "a number, found a huge integer (out_of_range)", id="22 5,000 digits"
        ),
        pytest.param(
            b'{"probs": [1, 0, 0], "name": "\xff"}', "text in UTF-8, found other bytes (bad_encoding)", id="25"
        ),
        pytest.param(
            b'{"probs": [1, 0, 0], "name": "\\ud800"}', "found half a surrogate pair (bad_encoding)", id="25 surrogate"
        ),
        pytest.param(b'{"probs": [0.7, 0.2', "a JSON object, found a syntax error at character 20 (bad_json)", id="30"),
        pytest.param(
            b"[" + THREE + b"]", "a JSON object, found an array of 1 (wrong_type)", id="33 an array among objects"
        ),
        pytest.param(b"\0\0\0\0\0\0", "text, found NUL bytes (nul_bytes)", id="34"),
        pytest.param(b"[" * 100_000, "a flat record, found JSON nested too deep (too_deep)", id="36"),
    ],
)
def test_a_bad_line_is_rejected_with_its_reason_and_others_are_kept(line: bytes, sentence: str, tmp_path: Path) -> None:
    """The message has the location, what was expected, and what was found."""
    decoded = read_bytes(tmp_path, "a.jsonl", THREE + b"\n" + line + b"\n" + THREE + b"\n")
    (message,) = reported(decoded)
    assert message.startswith("line 2: expected ")
    assert message.endswith(sentence)
    assert len(message) < 200
    np.testing.assert_array_equal(decoded.records.vectors, np.array([GOOD, GOOD], dtype=np.float32))


@pytest.mark.parametrize(
    ("vector", "found"),
    [
        pytest.param({"cat": 0.5, "dog": 0.4, "emu": 0.1}, "the class 'emu'", id="21 unknown"),
        pytest.param({"cat": 0.5, "dog": 0.5}, "no class 'owl'", id="21 missing"),
        pytest.param({}, "no class 'cat'", id="21 empty"),
    ],
)
def test_21_an_object_with_other_classes_is_rejected(vector: dict[str, float], found: str, tmp_path: Path) -> None:
    """The missing or extra class is named."""
    decoded = read_bytes(tmp_path, "a.jsonl", json.dumps({"probs": vector}).encode(), CLASSES)
    assert reported(decoded) == [
        f"line 1: expected one number for each of the 3 classes, found {found} (unknown_class)"
    ]


def test_33_a_short_file_without_objects_gets_a_hint(tmp_path: Path) -> None:
    """One array on one line is too short to fail the file."""
    decoded = read_bytes(tmp_path, "a.jsonl", json.dumps([{"probs": GOOD} for _ in range(40)]).encode())
    assert reasons(decoded) == ["wrong_type"]
    assert any("one JSON object per line" in hint for hint in decoded.hints)


def test_33_a_hundred_broken_lines_after_good_ones_do_not_fail_the_file(tmp_path: Path) -> None:
    """After one object, the file is JSON Lines."""
    decoded = read_bytes(tmp_path, "a.jsonl", THREE + b"\n" + b"{\n" * 500 + THREE)
    assert (len(decoded.records.vectors), dict(decoded.rejections.reasons)) == (2, {"bad_json": 500})


def test_35_a_line_that_is_too_long_is_skipped_without_parsing(tmp_path: Path) -> None:
    """The next line keeps its number."""
    content = b"\n".join([THREE, b"[" + b"0," * (9 << 20), b"oops", THREE, b"x" * (17 << 20)])
    decoded = read_bytes(tmp_path, "a.jsonl", content)
    assert reported(decoded) == [
        "line 2: expected a line of at most 16 MiB, found a longer one (line_too_long)",
        "line 3: expected a JSON object, found a syntax error at character 1 (bad_json)",
        "line 5: expected a line of at most 16 MiB, found a longer one (line_too_long)",
    ]
    assert len(decoded.records.vectors) == 2


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        pytest.param(b"3", "one of the classes 0, 1, 2, found 3 (label_out_of_range)", id="47"),
        pytest.param(b"-1", "one of the classes 0, 1, 2, found -1 (label_out_of_range)", id="47 negative"),
        pytest.param(
            b'"cat"',
            "one of the classes 0, 1, 2 (set their names in vector order with --classes), found 'cat' (label_out_of_range)",
            id="47 a name",
        ),
        pytest.param(
            b"1.5",
            "one of the classes 0, 1, 2 (set their names in vector order with --classes), found 1.5 (label_out_of_range)",
            id="47 a fraction",
        ),
        pytest.param(b"9" * 100, "a class index, found a huge integer (out_of_range)", id="47 huge"),
        pytest.param(b"true", "a class name or index, found true (wrong_type)", id="18 label"),
        pytest.param(b"null", "a class name or index, found null (wrong_type)", id="19 label"),
        pytest.param(b"NaN", "a class name or index, found nan (wrong_type)", id="1 label"),
        pytest.param(b"[1]", "a class name or index, found an array of 1 (wrong_type)", id="16 label"),
        pytest.param(b'""', "a label, found none (missing_field)", id="20 empty label"),
    ],
)
def test_a_bad_label_rejects_its_record(label: bytes, sentence: str, tmp_path: Path) -> None:
    good = b'{"probs": [0.7, 0.2, 0.1], "label": 0}\n'
    decoded = read_bytes(tmp_path, "a.jsonl", good + good.replace(b"0}", label + b"}") + good, LABELLED)
    assert reported(decoded) == [f"line 2: expected {sentence}"]
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [0, 0]


def test_20_a_missing_label_rejects_its_record(tmp_path: Path) -> None:
    decoded = read_bytes(tmp_path, "a.jsonl", THREE, LABELLED)
    assert reported(decoded) == ["line 1: expected a field 'label', found the fields probs (missing_field)"]


def test_nan_in_an_unused_field_is_bad_json(tmp_path: Path) -> None:
    """The message does not mention the outputs."""
    decoded = read_bytes(tmp_path, "a.jsonl", THREE + b'\n{"probs": [1, 0, 0], "age": NaN}')
    assert reported(decoded) == [
        "line 2: expected a JSON object, found one with a NaN or Infinity in another field (bad_json)"
    ]


def test_12_a_score_is_read_as_the_second_class(tmp_path: Path) -> None:
    """A declared score s becomes [1 - s, s]; anything but a number is rejected."""
    content = b'{"score": 0.9}\n{"score": [0.9]}\n{"score": "0.9"}\n{"score": 1.2}\n{"score": NaN}\n{"score": -1}\n{"score": 0}'
    decoded = read_bytes(tmp_path, "a.jsonl", content, offline_schema(OutputKind.SCORE))
    np.testing.assert_allclose(decoded.records.vectors, [[0.1, 0.9], [1.0, 0.0]], atol=1e-7)
    assert reasons(decoded) == ["wrong_type", "wrong_type", "above_one", "not_finite", "negative"]
    assert decoded.classes == ("0", "1")


def test_class_columns_without_one_good_line_are_explained(tmp_path: Path) -> None:
    """Their names are those of the line itself, since no line of the file could be parsed strictly."""
    content = b'{"prob_cat": NaN, "prob_dog": 0.3}\n{"prob_cat": 0.7, "prob_dog": -Infinity}\n'
    decoded = read_bytes(tmp_path, "a.jsonl", content, offline_schema(class_columns=("prob_*",)))
    assert reported(decoded) == [
        "line 1: expected finite numbers, found nan (not_finite)",
        "line 2: expected finite numbers, found -inf (not_finite)",
    ]
