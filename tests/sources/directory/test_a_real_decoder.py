"""The directory source with the real decoder: every format, and unusual text."""

import gzip
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.records.rejections import Reason
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]

LINES = b'{"probs": [0.7, 0.2, 0.1], "id": "1"}\n' * 2
CSV_ROW = b'1,"[0.7, 0.2, 0.1]"\n'
PROBS = np.array([[0.7, 0.2, 0.1]] * 2)


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, PROBS)
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, probs=PROBS)
    return buffer.getvalue()


def _parquet() -> bytes:
    arrow = pytest.importorskip("pyarrow", reason="LOUD: no pyarrow; Parquet is not tested")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({"probs": PROBS.tolist()}), buffer)
    return buffer.getvalue()


def _decoding(watch: Watch, decoder: Any) -> Inbox:
    inbox = watch()
    inbox.decoder = decoder
    inbox.crash()
    return inbox


def _accepted(inbox: Inbox) -> int:
    return sum(delivery.batch.accepted for delivery in inbox.deliveries)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("f.jsonl", lambda: LINES, id="jsonl"),
        pytest.param("f.csv", lambda: b"id,probs\n" + CSV_ROW + CSV_ROW, id="csv"),
        pytest.param("f.jsonl.gz", lambda: gzip.compress(LINES), id="gzip"),
        pytest.param("f.npy", _npy, id="npy"),
        pytest.param("f.npz", _npz, id="npz"),
        pytest.param("f.parquet", _parquet, id="parquet"),
    ],
)
def test_each_format_is_read_once(watch: Watch, real_decoder: Any, name: str, content: Callable[[], bytes]) -> None:
    """Also across a restart."""
    inbox = _decoding(watch, real_decoder)
    inbox.put(name, content())
    inbox.polls(5)
    inbox.crash()
    inbox.polls(5)
    assert _accepted(inbox) == 2
    assert not inbox.rejected
    assert not inbox.counted["files_failed"]


def test_a4_a_slow_copy_of_parquet_is_read_once(watch: Watch, real_decoder: Any) -> None:
    """Written in steps: read once, after it settled, without a failure."""
    inbox = _decoding(watch, real_decoder)
    content = _parquet()
    for start in range(0, len(content), 100):
        inbox.put("f.parquet", content[start : start + 100])
        inbox.poll(1)
    inbox.polls(5)
    assert _accepted(inbox) == 2
    assert not inbox.counted["files_failed"]


@pytest.mark.parametrize(
    ("content", "accepted", "rejected"),
    [
        pytest.param(LINES.replace(b"\n", b"\r\n"), 2, {}, id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + LINES, 2, {}, id="byte order mark"),
        pytest.param(LINES + b"\n\n" + LINES, 4, {}, id="blank lines"),
        pytest.param(LINES + b"{broken\n" + LINES, 4, {Reason.BAD_JSON: 1}, id="one bad line"),
    ],
)
def test_a45_unusual_text_encodings(
    watch: Watch, real_decoder: Any, content: bytes, accepted: int, rejected: dict[Reason, int]
) -> None:
    """CRLF, byte order mark, blank and broken lines."""
    inbox = _decoding(watch, real_decoder)
    for start in range(0, len(content), 30):
        inbox.put("f.jsonl", content[start : start + 30])
        inbox.poll()
    assert _accepted(inbox) == accepted
    assert inbox.rejected == Counter(rejected)


def test_a45_a_repeated_header_is_no_record(watch: Watch, real_decoder: Any) -> None:
    """A CSV file with another appended, header included."""
    inbox = _decoding(watch, real_decoder)
    inbox.put("f.csv", b"\nid,probs\n" + CSV_ROW)
    inbox.poll()
    inbox.put("f.csv", b"id,probs\n" + CSV_ROW)
    inbox.poll()
    assert _accepted(inbox) == 2


def test_a_file_that_is_not_jsonl_fails(watch: Watch, real_decoder: Any) -> None:
    """Pretty-printed JSON fails after a hundred lines without an object."""
    inbox = _decoding(watch, real_decoder)
    inbox.put("f.jsonl", b"[\n" + b"  0.5,\n" * 300 + b"]\n")
    inbox.put("g.jsonl", LINES)
    inbox.polls(3)
    assert inbox.counted["files_failed"] == 1
    assert "not_jsonl" in inbox.warnings[0]
    assert _accepted(inbox) == 2
