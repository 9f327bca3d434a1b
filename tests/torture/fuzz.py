"""Bytes of any kind into the decoder: it never raises anything but a refusal, and every line is accounted for.

Run by `make torture`, with atheris where it is installed and with random changes to good files where it is not.
"""

import contextlib
import importlib
import io
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monitor.records.decoder import StreamDecoder
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.record_schema import ModelFormat
from monitor.records.rejections import RejectedFile
from tests.torture.records import CLASSES, gzip_of, line_of, npz_of, seeded

MOST_MEMORY = 2 << 30
"""The limit of memory growth."""

DECODER = StreamDecoder([ModelFormat("density", CLASSES, segment_fields=("site",))], hash_key=bytes(16))


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


_SOME = list(range(12))
SEEDS: dict[Format, bytes] = {
    Format.JSONL: b"".join(map(line_of, _SOME)),
    Format.CSV: csv_of(_SOME),
    Format.JSONL_GZ: gzip_of([line_of(number) for number in _SOME]),
    Format.CSV_GZ: gzip_of([csv_of(_SOME)]),
    Format.NPY: _npy_of(_SOME),
    Format.NPZ: npz_of(_SOME),
    Format.PARQUET: _arrow_of(_SOME, parquet=True),
    Format.ARROW: _arrow_of(_SOME, parquet=False),
}


def check(format_: Format, data: bytes) -> None:
    """Decode bytes as a whole file, and text also as tailed lines."""
    with contextlib.suppress(RejectedFile):
        for arrived in DECODER.settled("fuzz", io.BytesIO(data), format_):
            _check_sum(arrived)
    if format_.grows:
        lines = data[: data.rfind(b"\n") + 1]
        with contextlib.suppress(RejectedFile):
            arrived = DECODER.text(TextPiece("fuzz", format_, lines, head=data[: data.find(b"\n") + 1]))
            _check_sum(arrived)
            assert arrived.rows == lines.count(b"\n"), (arrived.rows, lines.count(b"\n"))


def _check_sum(arrived: RecordBatch) -> None:
    counted = arrived.accepted + arrived.rejected.total() + arrived.ignored
    assert counted == arrived.rows, (arrived.accepted, arrived.rejected, arrived.ignored, arrived.rows)
    for one in arrived.models.values():
        assert np.isfinite(one.records.vectors).all()


def mutated(dice: random.Random, data: bytes) -> bytes:
    """Return bytes with a few changes that often break parsers."""
    some = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        place = dice.randrange(len(some) + 1)
        kind = dice.randrange(6)
        if kind == 0 and some:
            some[place % len(some)] ^= 1 << dice.randrange(8)
        elif kind == 1:
            some[place:place] = dice.choice(_AWKWARD)
        elif kind == 2:
            del some[place : place + dice.randrange(1, 40)]
        elif kind == 3:
            some[place : place + 4] = dice.randbytes(4)
        elif kind == 4:
            end = place + dice.randrange(200)
            some[place:place] = some[place:end]
        else:
            del some[place:]
    return bytes(some)


_AWKWARD = (
    *(b"\n", b"\r", b"\0", b'"', b"{", b"}", b"[", b"[" * 2000, b'{"a":' * 2000, b"]", b",", b"NaN", b"1e999", b"-"),
    *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"9" * 5000, b"null", b"true", b'"probs": ', b'"time": ', b"\\u0000"),
)


def fuzz_at_random(seconds: float, seed: int = 1, told: Callable[[int], None] = lambda _: None) -> int:
    """Modify valid files at random for a while; return the number of attempts."""
    dice = seeded(seed)
    formats = [format_ for format_, data in SEEDS.items() if data]
    end, tried = time.monotonic() + seconds, 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < end:
        format_ = formats[tried % len(formats)]
        data = mutated(dice, SEEDS[format_])
        try:
            check(format_, data)
        except Exception as error:
            error.add_note(f"{format_}: {data!r}")
            raise
        tried += 1
        if tried % 5000 == 0:
            told(tried)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MOST_MEMORY, f"memory grew by {grown:,} bytes"
    return tried


def _with_atheris(seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")

    formats = list(SEEDS)

    def one(data: bytes) -> None:
        if data:
            check(formats[data[0] % len(formats)], data[1:])

    words = [sys.argv[0], f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-max_len=65536", "-timeout=30"]
    with tempfile.TemporaryDirectory() as corpus:
        for number, format_ in enumerate(formats):
            (Path(corpus) / format_).write_bytes(bytes([number]) + SEEDS[format_])
        atheris.instrument_all()
        atheris.Setup([*words, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    _with_atheris(int(sys.argv[1]))
