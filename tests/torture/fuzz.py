"""Fuzzes the decoder: it raises only RejectedFile, and counts every line.

Run by `make torture`, with atheris if it is installed, otherwise with random mutations of valid files.
"""

import contextlib
import importlib
import io
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.record_schema import ModelFormat
from monitor.records.rejections import RejectedFile
from tests.torture.records import CLASSES, gzip_of, line_of, npz_of, seeded

MAX_MEMORY_GROWTH = 2 << 30
"""In bytes."""

DECODER = RecordDecoder([ModelFormat("density", CLASSES, segment_fields=("site",))], hash_key=bytes(16))


def csv_of(numbers: list[int]) -> bytes:
    """Return records as a CSV file with one column per class, which is not configured: all rows are rejected."""
    return b"probs,time,site\n" + b"".join(b'"[0.2, 0.3, 0.5]",%d,A\n' % (1_760_000_000 + number) for number in numbers)


def _npy_of(numbers: list[int]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[0.2, 0.3, 0.5]] * len(numbers)))
    return buffer.getvalue()


def _arrow_of(numbers: list[int], *, parquet: bool) -> bytes:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.feather  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        return b""
    table = pa.table({"probs": [[0.2, 0.3, 0.5]] * len(numbers), "time": [1.76e9 + number for number in numbers]})
    buffer = io.BytesIO()
    if parquet:
        pa.parquet.write_table(table, buffer)
    else:
        pa.feather.write_feather(table, buffer)
    return buffer.getvalue()


_NUMBERS = list(range(12))
SEEDS: dict[Format, bytes] = {
    Format.JSONL: b"".join(map(line_of, _NUMBERS)),
    Format.CSV: csv_of(_NUMBERS),
    Format.JSONL_GZ: gzip_of([line_of(number) for number in _NUMBERS]),
    Format.CSV_GZ: gzip_of([csv_of(_NUMBERS)]),
    Format.NPY: _npy_of(_NUMBERS),
    Format.NPZ: npz_of(_NUMBERS),
    Format.PARQUET: _arrow_of(_NUMBERS, parquet=True),
    Format.ARROW: _arrow_of(_NUMBERS, parquet=False),
}


def check(format_: Format, data: bytes) -> None:
    """Decode bytes as a whole file, and text also as tailed lines."""
    with contextlib.suppress(RejectedFile):
        for batch in DECODER.settled("fuzz", io.BytesIO(data), format_):
            _check_sum(batch)
    if format_.grows:
        lines = data[: data.rfind(b"\n") + 1]
        with contextlib.suppress(RejectedFile):
            batch = DECODER.text(TextPiece("fuzz", format_, lines, head=data[: data.find(b"\n") + 1]))
            _check_sum(batch)
            assert batch.rows == lines.count(b"\n"), (batch.rows, lines.count(b"\n"))


def _check_sum(batch: RecordBatch) -> None:
    counted = batch.accepted + batch.rejected.total() + batch.ignored
    assert counted == batch.rows, (batch.accepted, batch.rejected, batch.ignored, batch.rows)
    for one in batch.models.values():
        assert np.isfinite(one.vectors).all()


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few changes that often break parsers."""
    some = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        place = rng.randrange(len(some) + 1)
        kind = rng.randrange(6)
        if kind == 0 and some:
            some[place % len(some)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            some[place:place] = rng.choice(_INSERTIONS)
        elif kind == 2:
            del some[place : place + rng.randrange(1, 40)]
        elif kind == 3:
            some[place : place + 4] = rng.randbytes(4)
        elif kind == 4:
            end = place + rng.randrange(200)
            some[place:place] = some[place:end]
        else:
            del some[place:]
    return bytes(some)


_INSERTIONS = (
    *(b"\n", b"\r", b"\0", b'"', b"{", b"}", b"[", b"[" * 2000, b'{"a":' * 2000, b"]", b",", b"NaN", b"1e999", b"-"),
    *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"9" * 5000, b"null", b"true", b'"probs": ', b'"time": ', b"\\u0000"),
)


def fuzz_at_random(seconds: float, seed: int = 1) -> int:
    """Modify valid files at random for a while; return the number of attempts."""
    rng = seeded(seed)
    formats = [format_ for format_, data in SEEDS.items() if data]
    end, tried = time.monotonic() + seconds, 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < end:
        format_ = formats[tried % len(formats)]
        data = mutated(rng, SEEDS[format_])
        try:
            check(format_, data)
        except Exception as error:
            error.add_note(f"{format_}: {data!r}")
            raise
        tried += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MAX_MEMORY_GROWTH, f"memory grew by {grown:,} bytes"
    return tried


def _with_atheris(seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")

    formats = list(SEEDS)

    def check_one(data: bytes) -> None:
        if data:
            check(formats[data[0] % len(formats)], data[1:])

    arguments = [sys.argv[0], f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-max_len=65536", "-timeout=30"]
    with tempfile.TemporaryDirectory() as corpus:
        for number, format_ in enumerate(formats):
            (Path(corpus) / format_).write_bytes(bytes([number]) + SEEDS[format_])
        atheris.instrument_all()
        atheris.Setup([*arguments, corpus], check_one)
        atheris.Fuzz()


if __name__ == "__main__":
    _with_atheris(int(sys.argv[1]))
