"""Choosing the reader, and files that cannot be opened at all."""

import os
from pathlib import Path

import pytest

from monitor.decode.files import read_file
from monitor.decode.records import Layout, Reason, Rejection
from monitor.decode.rejections import shown
from monitor.errors import InvalidInput
from tests.decode.record_files import GOOD, write_records


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.csv.gz", "a.pkl", "a", ".jsonl"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(name: str, tmp_path: Path) -> None:
    """A format is never guessed from what is inside."""
    with pytest.raises(InvalidInput, match=r"expected a file named \.jsonl, \.ndjson, \.csv, .* found "):
        read_file(tmp_path / name, Layout())


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """A missing file, a directory and a pipe are told apart, and no pipe is waited for."""
    with pytest.raises(InvalidInput, match=r"a\.csv: expected a file, found none"):
        read_file(tmp_path / "a.csv", Layout())
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(InvalidInput, match=r"b\.csv: expected a file, found a directory"):
        read_file(tmp_path / "b.csv", Layout())
    os.mkfifo(tmp_path / "c.csv")
    with pytest.raises(InvalidInput, match=r"c\.csv: expected a file, found something else"):
        read_file(tmp_path / "c.csv", Layout())


def test_a_missing_file_of_labels_is_named(tmp_path: Path) -> None:
    """The message names the labels, not the outputs."""
    (tmp_path / "a.npy").touch()
    with pytest.raises(InvalidInput, match=r"y\.npy: expected a file, found none"):
        read_file(tmp_path / "a.npy", Layout(label_field="label"), labels=tmp_path / "y.npy")


def test_an_error_of_the_system_becomes_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission is invalid input, with the system's own words."""
    path = write_records(tmp_path, ".jsonl", [GOOD])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InvalidInput, match=r"records\.jsonl: expected a readable file, found Permission denied"):
        read_file(path, Layout())


@pytest.mark.parametrize("suffix", [".JSONL", ".ndjson", ".Parquet", ".pq"])
def test_suffixes_have_other_spellings(suffix: str, tmp_path: Path) -> None:
    """Upper case and the usual other names are known."""
    usual = {".pq": ".parquet", ".ndjson": ".jsonl"}.get(suffix, suffix.lower())
    path = write_records(tmp_path, usual, [GOOD]).rename(tmp_path / f"b{suffix}")
    assert len(read_file(path, Layout()).batch.probabilities) == 1


def test_a_rejection_reads_as_a_sentence() -> None:
    """Where, what was expected, what was found, and the reason to search for."""
    rejection = Rejection("line 7", Reason.BAD_SUM, "probabilities that sum to 1", "a sum of 1.7")
    assert str(rejection) == "line 7: expected probabilities that sum to 1, found a sum of 1.7 (bad_sum)"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 10**6, id="text"),
        pytest.param(b"x" * 10**6, id="bytes"),
        pytest.param(1 << 20_000, id="integer"),
        pytest.param([0] * 10**6, id="list"),
        pytest.param(1 / 3, id="float"),
        pytest.param(set(range(10**4)), id="set"),
    ],
)
def test_a_value_is_shown_short(value: object) -> None:
    """No message carries a whole record, however large."""
    assert len(shown(value)) <= 40
