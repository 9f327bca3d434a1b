"""Choosing the reader, and files that cannot be opened."""

import os
from pathlib import Path

import pytest

from monitor.errors import InvalidInput
from monitor.records.offline import offline_schema, read_file
from monitor.records.rejections import Reason, RejectedRecord, Rejection, RejectionProblem, Rejections, preview
from tests.records.record_files import GOOD, write_records


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.parquet.gz", "a.pkl", "a", ".jsonl"])
def test_an_unknown_suffix_is_rejected_with_the_known_ones(name: str, tmp_path: Path) -> None:
    """The format is never guessed from the content."""
    with pytest.raises(InvalidInput, match=r"expected a file named \.jsonl, \.ndjson, \.csv, .* found "):
        read_file(tmp_path / name, offline_schema())


def test_a_path_that_is_no_file_is_rejected(tmp_path: Path) -> None:
    """A missing file, a directory and a pipe have different messages, and no pipe is waited for."""
    with pytest.raises(InvalidInput, match=r"a\.csv: expected a file, found none"):
        read_file(tmp_path / "a.csv", offline_schema())
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(InvalidInput, match=r"b\.csv: expected a file, found a directory"):
        read_file(tmp_path / "b.csv", offline_schema())
    os.mkfifo(tmp_path / "c.csv")
    with pytest.raises(InvalidInput, match=r"c\.csv: expected a file, found something else"):
        read_file(tmp_path / "c.csv", offline_schema())


def test_a_missing_label_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    with pytest.raises(InvalidInput, match=r"y\.npy: expected a file, found none"):
        read_file(tmp_path / "a.npy", offline_schema(label_field="label"), labels=tmp_path / "y.npy")


def test_a_system_error_becomes_invalid_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission, with the message of the system."""
    path = write_records(tmp_path, ".jsonl", [GOOD])

    def reject(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", reject)
    with pytest.raises(InvalidInput, match=r"records\.jsonl: expected a readable file, found Permission denied"):
        read_file(path, offline_schema())


@pytest.mark.parametrize("suffix", [".JSONL", ".ndjson", ".Parquet", ".pq"])
def test_suffixes_have_other_spellings(suffix: str, tmp_path: Path) -> None:
    """Upper case, and the common alternatives."""
    usual = {".pq": ".parquet", ".ndjson": ".jsonl"}.get(suffix, suffix.lower())
    path = write_records(tmp_path, usual, [GOOD]).rename(tmp_path / f"b{suffix}")
    assert len(read_file(path, offline_schema()).records.vectors) == 1


def test_a_rejection_is_one_sentence() -> None:
    """Where, expected, found, and the reason."""
    rejection = Rejection("line 7", Reason.BAD_SUM, "probabilities that sum to 1", "a sum of 1.7")
    assert str(rejection) == "line 7: expected probabilities that sum to 1, found a sum of 1.7 (bad_sum)"


def _rejections(*given: Reason) -> Rejections:
    rejections = Rejections("line")
    for line, reason in enumerate(given, 2):
        rejections.add("", RejectedRecord(line, reason), RejectionProblem(reason, "this", "that"))
    return rejections


def test_rejections_are_listed() -> None:
    """One in the singular; five without a remark on more."""
    assert str(_rejections(Reason.EMPTY)) == "1 bad record\n  line 2: expected this, found that (empty)"
    assert str(_rejections(*[Reason.EMPTY] * 5)).splitlines() == [
        "5 bad records",
        *(f"  line {line}: expected this, found that (empty)" for line in range(2, 7)),
    ]


def test_rejections_beyond_the_fifth_are_counted_by_reason() -> None:
    """Counts include all rejections, the most frequent reason first."""
    reasons = [Reason.EMPTY, Reason.BAD_SUM, Reason.EMPTY, Reason.BAD_SUM, Reason.BAD_SUM, Reason.NEGATIVE]
    rejections = _rejections(*reasons, Reason.BAD_SUM)
    assert rejections.by_reason() == "4 bad_sum, 2 empty, 1 negative"
    assert str(rejections).splitlines() == [
        "7 bad records",
        *(f"  line {line}: expected this, found that ({reason})" for line, reason in enumerate(reasons[:5], 2)),
        "  and 2 more: 4 bad_sum, 2 empty, 1 negative in all",
    ]


def test_many_rejections_are_counted_with_separators(tmp_path: Path) -> None:
    lines = str(
        read_file(write_records(tmp_path, ".jsonl", [[2.0, 0.0]] * 1_234), offline_schema()).rejections
    ).splitlines()
    assert (lines[0], lines[-1], len(lines)) == (
        "1,234 bad records",
        "  and 1,229 more: 1,234 above_one in all",
        7,
    )


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
def test_values_are_truncated(value: object) -> None:
    """No message has a whole record."""
    assert len(preview(value)) <= 40
