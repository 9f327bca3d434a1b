"""C19: the same records in any format give identical estimates, end to end."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Ran
from tests.ingest.lines import NOW, POOL, small_reference

RECORDS = 300
VECTORS = np.round(POOL[:RECORDS].astype(np.float64), 5)
SITES = ["AB"[n % 2] for n in range(RECORDS)]
TIMES = [NOW - RECORDS + n for n in range(RECORDS)]
IDS = [f"exam-{n % 290}" for n in range(RECORDS)]


def as_jsonl(path: Path) -> None:
    """One object per line."""
    with path.open("w", encoding="utf-8") as file:
        for vector, site, time, name in zip(VECTORS.tolist(), SITES, TIMES, IDS, strict=True):
            file.write(json.dumps({"probs": vector, "site": site, "time": time, "id": name}) + "\n")


def as_csv(path: Path) -> None:
    """A column of JSON arrays."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "site", "probs"])
        for vector, site, time, name in zip(VECTORS.tolist(), SITES, TIMES, IDS, strict=True):
            writer.writerow([name, time, site, json.dumps(vector)])


def as_npz(path: Path) -> None:
    """One array per field."""
    np.savez(path, probs=VECTORS, site=np.array(SITES), time=np.array(TIMES), id=np.array(IDS))


def as_parquet(path: Path) -> None:
    """One column per field."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"probs": VECTORS.tolist(), "site": SITES, "time": TIMES, "id": IDS})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def as_arrow(path: Path) -> None:
    """The same, as an Arrow file."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"probs": VECTORS.tolist(), "site": SITES, "time": TIMES, "id": IDS})
    with arrow.OSFile(str(path), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def gzipped(write: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a writer of the same, compressed."""

    def packed(path: Path) -> None:
        plain = path.with_name("plain")
        write(plain)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    return packed


def watched(
    cpcmon: Callable[..., Ran], folder: Path, name: str, write: Callable[[Path], None]
) -> list[dict[str, object]]:
    """Write a file of a format, watch the folder once, and return the results without times."""
    inbox = folder / f"inbox-{name}"
    inbox.mkdir()
    write(inbox / name)
    small_reference().save(folder / "density.ref")
    words = ["--reference", folder / "density.ref", "--state", folder / f"state-{name}", "--settle", "0.2s"]
    ran = cpcmon("watch", inbox, *words, "--segment-by", "site", "--once", "--json")
    assert ran.code == 0, ran.err
    answers: list[dict[str, object]] = [json.loads(line) for line in ran.out.splitlines()]
    return [{key: value for key, value in answer.items() if key != "time"} for answer in answers]


def test_c19_the_same_records_in_any_format_give_identical_estimates(
    cpcmon: Callable[..., Ran], tmp_path: Path
) -> None:
    """Accuracy, bounds, records and duplicates, for the whole and for each site."""
    writers: dict[str, Callable[[Path], None]] = {
        "a.jsonl": as_jsonl,
        "a.csv": as_csv,
        "a.npz": as_npz,
        "a.parquet": as_parquet,
        "a.arrow": as_arrow,
        "a.jsonl.gz": gzipped(as_jsonl),
        "a.csv.gz": gzipped(as_csv),
    }
    found = {name: watched(cpcmon, tmp_path, name, write) for name, write in writers.items()}
    first = found["a.jsonl"]
    assert [answer["segment"] for answer in first] == ["all", "site=A", "site=B"]
    assert (first[0]["records"], first[0]["rejected"]) == (290, 10)
    for name, answers in found.items():
        assert answers == first, name


def test_c19_an_array_alone_gives_the_same_as_its_vectors_in_lines(cpcmon: Callable[..., Ran], tmp_path: Path) -> None:
    """An NPY file has only vectors."""

    def lines(path: Path) -> None:
        path.write_text("".join(json.dumps({"probs": vector}) + "\n" for vector in VECTORS.tolist()), encoding="utf-8")

    (from_lines,) = watched(cpcmon, tmp_path, "a.jsonl", lines)
    (from_array,) = watched(cpcmon, tmp_path, "a.npy", lambda path: np.save(path, VECTORS))
    assert from_array == from_lines
    assert from_lines["records"] == RECORDS
