"""NumPy files: no pickles, no trust in headers, arrays found by name."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import InvalidInput, UsageError
from monitor.records.offline import offline_schema, read_file
from monitor.records.record_schema import OutputKind
from tests.records.record_files import GOOD, reported

ROWS = np.array([GOOD, [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
LABELLED = offline_schema(label_field="label")


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def _header(described: str, content: bytes = b"") -> bytes:
    text = described.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


class _Payload:
    """An object whose unpickling would be detected."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Path, ("unpickled",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            _header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 5)}", bytes(80)),
            r"expected a header that matches the file, found shape .* 40,000,000,000,000 bytes, and 80 \(bad_header\)",
            id="39",
        ),
        pytest.param(
            _header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -5)}", bytes(80)),
            "bad_header",
            id="39 negative",
        ),
        pytest.param(_npy(ROWS) + _npy(ROWS), "expected a header that matches the file", id="39 two arrays"),
        pytest.param(_npy(ROWS)[:-8], "expected a header that matches the file", id="39 cut short"),
        pytest.param(_npy(np.array([[_Payload()]])), r"found an array of Python objects \(pickle\)", id="40"),
        pytest.param(_npy(np.array([["a"]])), r"found an array of type <U1 \(wrong_type\)", id="41 texts"),
        pytest.param(_npy(ROWS.astype(complex)), r"found an array of type complex128 \(wrong_type\)", id="41 complex"),
        pytest.param(_npy(np.zeros(2, dtype="f8,f8")), r"\(wrong_type\)", id="41 structured"),
        pytest.param(_npy(np.array([[True]])), r"found an array of type bool \(wrong_type\)", id="18"),
        pytest.param(b"", "a header that cannot be read", id="empty"),
        pytest.param(b"probs\n", "a header that cannot be read", id="text"),
        pytest.param(
            _header("{'descr': 'f8', __import__('os')}"), "a header that cannot be read", id="code in the header"
        ),
        pytest.param(_header("{'descr': '<f8', ("), "a header that cannot be read", id="half a header"),
        pytest.param(_header("{[]: 1}"), "a header that cannot be read", id="no keys"),
        pytest.param(b"\x93NUMPY\x03\x00", "a header that cannot be read: version 3.0", id="version 3"),
        pytest.param(_npy(ROWS[0]), r"found an array of shape \(3,\) \(not_a_vector\)", id="16"),
    ],
)
def test_an_inconsistent_header_fails_the_file(content: bytes, message: str, tmp_path: Path) -> None:
    """It is compared with the file size before memory is allocated, and nothing is unpickled."""
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read_file(path, offline_schema())
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("probs.npy", content)
    with pytest.raises(InvalidInput, match=message):
        read_file(tmp_path / "a.npz", offline_schema())


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(ROWS.astype(">f8"), id="41 big-endian"),
        pytest.param(np.asfortranarray(ROWS), id="41 Fortran"),
        pytest.param(ROWS.astype(np.float32), id="41 float32"),
        pytest.param(ROWS[:0], id="no rows"),
    ],
)
def test_an_unusual_but_valid_array_is_read(array: np.ndarray, tmp_path: Path) -> None:
    """Any byte order, memory order and size."""
    np.save(tmp_path / "a.npy", array)
    decoded = read_file(tmp_path / "a.npy", offline_schema(classes=("a", "b", "c")))
    np.testing.assert_allclose(decoded.records.vectors, array.astype(float), rtol=1e-6)


def test_labels_of_an_npy_file_come_from_another_file(tmp_path: Path) -> None:
    """The message names the alternatives."""
    outputs, labels = tmp_path / "a.npy", tmp_path / "y.npy"
    np.save(outputs, ROWS)
    np.save(labels, np.array([0, 2, 7]))
    decoded = read_file(outputs, LABELLED, labels=labels)
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [0, 2]
    assert reported(decoded) == ["row 3: expected one of the classes 0, 1, 2, found 7 (label_out_of_range)"]
    with pytest.raises(InvalidInput, match=r"a second \.npy file with the labels \(--labels; .*\), or an \.npz"):
        read_file(outputs, LABELLED)
    with pytest.raises(UsageError, match=r"expected a file of labels only beside an \.npy file"):
        read_file(tmp_path / "a.jsonl", LABELLED, labels=labels)
    with pytest.raises(InvalidInput, match=r"no class columns for an \.npy file"):
        read_file(outputs, offline_schema(class_columns=("prob_*",)))
    np.save(labels, np.array([0, 2]))
    with pytest.raises(InvalidInput, match="expected 3 labels, one per row, found 2"):
        read_file(outputs, LABELLED, labels=labels)


def test_arrays_of_an_npz_file_are_found_by_name(tmp_path: Path) -> None:
    """A missing one is reported with the existing names."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, source_probs=ROWS, source_labels=np.array([0, 2, 1]))
    decoded = read_file(path, offline_schema(vector_field="source_probs", label_field="source_labels"))
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [0, 2, 1]
    with pytest.raises(InvalidInput, match="an array named probs, found the arrays source_probs, source_labels"):
        read_file(path, offline_schema())


def test_an_npz_file_may_name_its_classes(tmp_path: Path) -> None:
    """The names are used if none are given, and otherwise decide the order of the columns."""
    path = tmp_path / "a.npz"
    np.savez(path, probs=ROWS, label=np.array(["owl", "cat", "dog"]), classes=np.array(["cat", "dog", "owl"]))
    decoded = read_file(path, LABELLED)
    assert decoded.classes == ("cat", "dog", "owl")
    assert decoded.records.labels is not None
    assert decoded.records.labels.tolist() == [2, 0, 1]
    reordered = read_file(path, offline_schema(classes=("owl", "cat", "dog")))
    np.testing.assert_array_equal(reordered.records.vectors, decoded.records.vectors[:, [2, 0, 1]])
    with pytest.raises(InvalidInput, match="expected the classes cat, dog, emu, found cat, dog, owl"):
        read_file(path, offline_schema(classes=("cat", "dog", "emu")))
    np.savez(path, probs=ROWS, classes=np.array(["cat", "dog"]))
    with pytest.raises(InvalidInput, match="expected 3 different class names, found 2: cat, dog"):
        read_file(path, offline_schema())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(np.array([0.0, 1.0, 2.0]), r"shape \(3,\), type float64", id="floats"),
        pytest.param(np.array([b"cat", b"dog", b"owl"]), r"shape \(3,\), type \|S3", id="bytes"),
        pytest.param(np.array([["cat", "dog", "owl"]]), r"shape \(1, 3\), type <U3", id="a matrix"),
        pytest.param(np.array("cat"), r"shape \(\), type <U3", id="a text"),
        pytest.param(np.array(["cat"]), r"shape \(1,\), type <U3", id="one name"),
        pytest.param(np.array([3]), r"shape \(1,\), type int64", id="a number of classes"),
        pytest.param(np.array([True, False, True]), r"found an array of type bool \(wrong_type\)", id="booleans"),
        pytest.param(np.array(["cat", 1, None]), r"found an array of Python objects \(pickle\)", id="objects"),
        pytest.param(np.array(["cat", "", "owl"]), "a name for each class, found an empty name", id="no name"),
        pytest.param(np.array([0, 1, 1]), "3 different class names, found 3: 0, 1, 1", id="twice"),
    ],
)
def test_invalid_class_names_fail_an_npz_file(names: np.ndarray, message: str, tmp_path: Path) -> None:
    """Ignoring them would assume the order of the array."""
    np.savez(tmp_path / "a.npz", probs=ROWS, classes=names)
    for layout in (offline_schema(), offline_schema(classes=("cat", "dog", "owl"))):
        with pytest.raises(InvalidInput, match=rf"a\.npz.*: expected .*{message}"):
            read_file(tmp_path / "a.npz", layout)


def test_an_array_named_classes_may_be_the_labels(tmp_path: Path) -> None:
    """If configured as the label field, it is no list of names."""
    np.savez(tmp_path / "a.npz", probs=ROWS, classes=np.array([0.0, 2.0, 1.0]))
    decoded = read_file(tmp_path / "a.npz", offline_schema(label_field="classes"))
    assert decoded.records.labels is not None
    assert (decoded.records.labels.tolist(), decoded.classes) == ([0, 2, 1], ("0", "1", "2"))


def test_scores_in_an_npz_file_are_of_the_second_class(tmp_path: Path) -> None:
    """Class names in another order are an error, since a score cannot be reordered."""
    path = tmp_path / "a.npz"
    np.savez(path, score=np.array([0.25, 1.0]), classes=np.array(["well", "ill"]))
    decoded = read_file(path, offline_schema(OutputKind.SCORE))
    assert (decoded.records.vectors.tolist(), decoded.classes) == ([[0.75, 0.25], [0, 1]], ("well", "ill"))
    with pytest.raises(InvalidInput, match="expected scores of the class well, found scores of the class ill"):
        read_file(path, offline_schema(OutputKind.SCORE, classes=("ill", "well")))


def test_class_columns_of_an_npz_file_are_arrays_of_one_length(tmp_path: Path) -> None:
    """One array per class, stacked in file order."""
    path = tmp_path / "a.npz"
    np.savez(path, prob_cat=ROWS[:, 0], other=np.array(1), prob_dog=1 - ROWS[:, 0])
    decoded = read_file(path, offline_schema(class_columns=("prob_*",)))
    assert decoded.classes == ("cat", "dog")
    np.testing.assert_allclose(decoded.records.vectors[:, 0], ROWS[:, 0], rtol=1e-6)
    np.savez(path, prob_cat=ROWS[:, 0], prob_dog=ROWS[:2, 0])
    with pytest.raises(InvalidInput, match="class columns of one length, found shapes"):
        read_file(path, offline_schema(class_columns=("prob_*",)))


def test_38_an_archive_that_would_be_too_large_is_rejected_unread(tmp_path: Path) -> None:
    """By the sum of its declared sizes."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a", "b", "c"):
            archive.writestr(f"{name}.npy", b"")
    honest = path.read_bytes()
    # The uncompressed size is 24 bytes into each entry of the central directory.
    lying = bytearray(honest)
    place = honest.find(b"PK\x01\x02")
    while place >= 0:
        lying[place + 24 : place + 28] = (2_000_000_000).to_bytes(4, "little")
        place = honest.find(b"PK\x01\x02", place + 1)
    path.write_bytes(lying)
    with pytest.raises(InvalidInput, match=r"at most 4 GiB uncompressed, found 5\.6 GiB \(too_large\)"):
        read_file(path, offline_schema())


def test_a_damaged_archive_fails_as_a_whole(tmp_path: Path) -> None:
    """Truncated, changed, or with another compression."""
    path = tmp_path / "a.npz"
    np.savez(path, probs=ROWS)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[content.find(b"NUMPY") + 150] ^= 0xFF
    for damaged in (b"", b"PK", content[:50], content[: len(content) // 2], content[:-1], bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="bad_file"):
            read_file(path, offline_schema())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("probs.npy", _npy(ROWS))
    with pytest.raises(InvalidInput, match="expected arrays stored or deflated"):
        read_file(path, offline_schema())
