"""C5: small files that would expand to gigabytes are rejected early, with little memory; each in its own process."""

import gzip
import io
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from monitor.records.formats import arrow_limits
from monitor.records.formats import npy as stream_arrays
from monitor.records.formats import text as gzip_text
from monitor.records.offline import offline_schema, read_file
from monitor.records.record_batch import Format
from monitor.records.rejections import RejectedFile
from tests.conftest import ROOT
from tests.records.streams import (
    GOOD,
    LINE,
    RECORD,
    decode_file,
    npy,
    npz,
    rejection_reason,
    stream,
    table,
    vectors_of,
    write,
)

MEBIBYTE = 1 << 20

# Run in its own process, so that memory used by other tests does not hide that of a file.
PROGRAM = """
import json, resource, sys
from pathlib import Path
from monitor.records.record_batch import Format
from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import ModelFormat
from monitor.records.rejections import RejectedFile
from tests.effort import calls_of

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

path, small, format_, use = sys.argv[1:]
models = [ModelFormat("density", ("cat", "dog", "owl"))]
decoder = RecordDecoder(models, hash_key=bytes(16), offline=use == "offline")
with open(small, "rb") as file:  # loads modules before the measurement
    list(decoder.settled("small", file, Format(format_)))
before, reason = peak(), "accepted"
def work():
    global reason
    try:
        with open(path, "rb") as file:
            for _ in decoder.settled("bomb", file, Format(format_)):
                pass
    except RejectedFile as rejected:
        reason = str(rejected.reason)
calls = calls_of(work)
print(json.dumps([reason, (peak() - before) / 1024, calls]))
"""


def _gzip_of(block: bytes, times: int) -> bytes:
    # Concatenating compressed files is much faster than compressing their contents.
    return gzip.compress(block, 9) * times


def _zip_of(name: str, head: bytes, times: int) -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(times):
            member.write(bytes(MEBIBYTE))
    return file.getvalue()


def _gzip_zeros() -> bytes:
    return _gzip_of(bytes(16 * MEBIBYTE), 64)


def _gzip_of_records() -> bytes:
    return _gzip_of(LINE * (MEBIBYTE // len(LINE)), 512)


def _gzip_one_line() -> bytes:
    return _gzip_of(b"[" * MEBIBYTE, 512)


def _npz_zeros() -> bytes:
    return _zip_of("probs.npy", npy(np.zeros((1, 3))), 300)


def _npz_of_unwanted_arrays() -> bytes:
    return _zip_of("other.npy", b"", 200)


def _parquet_of_many_rows() -> bytes:
    file = io.BytesIO()
    schema = pa.schema([("probs", pa.list_(pa.float64(), 3))])
    rows = pa.table({"probs": pa.FixedSizeListArray.from_arrays(np.tile(GOOD, 1_000_000), 3)})
    with parquet.ParquetWriter(file, schema) as writer:
        for _ in range(11):
            writer.write_table(rows)
    return file.getvalue()


def _parquet_of_wide_rows() -> bytes:
    values = pa.array(np.zeros(12_000_000))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 12_000_001, 40_000), pa.int32()), values)
    return table({"probs": lists})


def _parquet_of_many_wide_rows() -> bytes:
    file = io.BytesIO()
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 20_000 * 501, 20_000), pa.int32()), np.zeros(10_000_000))
    rows = pa.table({"probs": lists})
    with parquet.ParquetWriter(file, rows.schema, compression="zstd") as writer:
        for _ in range(8):
            writer.write_table(rows)
    return file.getvalue()


def _parquet_of_a_huge_id() -> bytes:
    file = io.BytesIO()
    rows = pa.table({"probs": [GOOD], "id": ["x" * 100_000_000]})
    parquet.write_table(rows, file, compression="zstd", use_dictionary=False, write_statistics=False)
    return file.getvalue()


def _parquet_of_huge_versions() -> bytes:
    file = io.BytesIO()
    texts = pa.array(["x" * 80_000_000, "y" * 80_000_000, "x", "y"], pa.large_string())
    rows = pa.table({"probs": [GOOD] * 4, "version": texts})
    parquet.write_table(rows, file, compression="zstd", dictionary_pagesize_limit=1 << 31, write_statistics=False)
    return file.getvalue()


def _arrow_of_zeros() -> bytes:
    file = io.BytesIO()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(24_000_000)), 3)
    batch = pa.record_batch([lists], names=["probs"])
    with ipc.new_file(file, batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as opened:
        opened.write_batch(batch)
    return file.getvalue()


def _npz_of_one_text(length: int, name: str) -> bytes:
    file = io.BytesIO()
    arrays: dict[str, Any] = {"probs": np.tile(GOOD, (8_192, 1)), name: np.array("x" * length)}
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _npz_of_a_long_version() -> bytes:
    return _npz_of_one_text(3_900_000, "version")


def _npz_of_a_long_id() -> bytes:
    return _npz_of_one_text(100_000, "id")


def _npz_of_many_members(count: int = 300_000) -> bytes:
    """A ZIP64 directory of empty entries."""
    content = npz(probs=np.array([GOOD]))
    place = content.rindex(b"PK\5\6")
    start = int.from_bytes(content[place + 16 : place + 20], "little")
    fields = (0x02014B50, 20, 20, 0, 0, 0, 33, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0)
    entry = struct.pack("<IHHHHHHIIIHHHHHII", *fields)
    entries = content[start:place] + b"".join(entry + b"%06d" % number for number in range(count))
    end = start + len(entries)
    return (
        content[:start]
        + entries
        + struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count + 1, count + 1, len(entries), start)
        + struct.pack("<IIQI", 0x07064B50, 0, end, 1)
        + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    )


def _npy_of_two_gigabytes(path: Path) -> None:
    rows = (2 << 30) // 24
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (rows, 3)})
        file.truncate(file.tell() + rows * 24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "format_"),
    [
        pytest.param(_gzip_zeros, Format.JSONL_GZ, id="row 37 zeros"),
        pytest.param(_gzip_of_records, Format.JSONL_GZ, id="row 37 records"),
        pytest.param(_gzip_one_line, Format.CSV_GZ, id="row 37 one line"),
        pytest.param(_npz_zeros, Format.NPZ, id="row 38"),
        pytest.param(_npz_of_unwanted_arrays, Format.NPZ, id="row 38 unwanted"),
        pytest.param(_parquet_of_many_rows, Format.PARQUET, id="row 42 rows"),
        pytest.param(_parquet_of_wide_rows, Format.PARQUET, id="row 42 wide rows"),
        pytest.param(_parquet_of_many_wide_rows, Format.PARQUET, id="many wide rows"),
        pytest.param(_parquet_of_a_huge_id, Format.PARQUET, id="huge id"),
        pytest.param(_parquet_of_huge_versions, Format.PARQUET, id="huge versions"),
        pytest.param(_arrow_of_zeros, Format.ARROW, id="arrow"),
        pytest.param(_npz_of_a_long_version, Format.NPZ, id="long version"),
        pytest.param(_npz_of_a_long_id, Format.NPZ, id="long id"),
        pytest.param(_npz_of_many_members, Format.NPZ, id="many members"),
        pytest.param(None, Format.NPY, id="npy of 2 GiB"),
    ],
)
def test_c5_a_bomb_is_rejected_with_little_memory_and_little_work(
    make: object, format_: Format, tmp_path: Path
) -> None:
    """Less than 64 MiB of additional memory, and no more calls than for a few mebibytes."""
    _check_bomb(make, format_, "stream", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "format_"),
    [
        pytest.param(_gzip_zeros, Format.JSONL_GZ, id="row 37 zeros"),
        pytest.param(_npz_zeros, Format.NPZ, id="row 38"),
        pytest.param(_parquet_of_wide_rows, Format.PARQUET, id="row 42 wide rows"),
        pytest.param(_arrow_of_zeros, Format.ARROW, id="arrow"),
    ],
)
def test_c5_a_bomb_is_rejected_offline(make: object, format_: Format, tmp_path: Path) -> None:
    """With the limits of a stream."""
    _check_bomb(make, format_, "offline", tmp_path)


def _check_bomb(make: object, format_: Format, use: str, tmp_path: Path) -> None:
    bomb, small = tmp_path / "bomb", tmp_path / "small"
    if callable(make):
        bomb.write_bytes(make())
    else:
        _npy_of_two_gigabytes(bomb)
    small.write_bytes(write([{"probs": GOOD}], format_))
    run = [sys.executable, "-c", PROGRAM, str(bomb), str(small), str(format_), use]
    reason, mebibytes, calls = json.loads(
        subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    )
    assert reason == "too_large"
    assert mebibytes < 64
    assert calls < 100_000


def test_a_scalar_of_an_npz_file_is_stored_once() -> None:
    """Whatever the number of rows."""
    blocks = decode_file(
        npz(probs=np.tile(GOOD, (9_000, 1)), site=np.array("A"), version=np.array("v" * 1_024)), Format.NPZ
    )
    assert [block.accepted for block in blocks] == [8_192, 808]
    for block in blocks:
        records = block.models["density"]
        assert records.versions is not None
        assert records.versions.values == ("v" * 1_024,)
        assert records.fields["site"].values == ("A",)
    one_more = npz(probs=np.tile(GOOD, (2, 1)), version=np.array(["v", "v" * 1_025]))
    assert rejection_reason(one_more, Format.NPZ) == "too_large"


def test_the_directory_of_an_npz_file_is_found_before_a_comment() -> None:
    """As by Python's zipfile."""
    honest, bomb = npz(probs=np.array([GOOD])), bytearray(_npz_of_many_members(30_000))
    commented = honest[:-2] + struct.pack("<H", 5) + b"hello"
    assert rejection_reason(commented, Format.NPZ) == "not rejected"
    bomb[-2:] = struct.pack("<H", 5)
    assert rejection_reason(bytes(bomb) + b"hello", Format.NPZ) == "too_large"


def test_unused_columns_of_an_arrow_file_are_not_decompressed() -> None:
    file = io.BytesIO()
    batch = pa.record_batch([pa.array([GOOD] * 1_000), pa.array(["x" * 300_000] * 1_000)], names=["probs", "junk"])
    with ipc.new_file(file, batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as opened:
        opened.write_batch(batch)
    (block,) = decode_file(file.getvalue(), Format.ARROW)
    assert block.accepted == 1_000


def test_a_child_that_crashes_or_hangs_fails_only_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout counts as too large, and the child is started again."""
    content = write([RECORD] * 3, Format.PARQUET)
    with monkeypatch.context() as patch:
        patch.setattr(arrow_limits, "TRIAL_SECONDS", 0)
        assert rejection_reason(table({"probs": [GOOD] * 200_000}), Format.PARQUET) == "too_large"
    assert rejection_reason(content, Format.PARQUET) == "not rejected"
    arrow_limits._TRIAL.end()  # noqa: SLF001
    assert rejection_reason(content, Format.PARQUET) == "not rejected"
    process = arrow_limits._TRIAL._process  # noqa: SLF001
    assert process is not None
    process.kill()
    process.wait()
    assert rejection_reason(content, Format.PARQUET) == "not rejected"


def test_c5_limits_apply_to_uncompressed_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    records = [{"probs": one.tolist()} for one in random.dirichlet(np.ones(3), 2_000)]
    for module, name, value, format_ in (
        (gzip_text, "MAX_EXPANDED_BYTES", 50_000, Format.JSONL_GZ),
        (stream_arrays, "MAX_NPY_BYTES", 10_000, Format.NPY),
        (stream_arrays, "MAX_WHOLE_BYTES", 10_000, Format.NPZ),
        (arrow_limits, "MAX_ROWS", 1_000, Format.PARQUET),
        (arrow_limits, "MAX_ROWS", 1_000, Format.ARROW),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert rejection_reason(write(records, format_), format_) == "too_large"
        assert rejection_reason(write(records, format_), format_) == "not rejected"
    with monkeypatch.context() as patch:
        patch.setattr(stream_arrays, "MAX_WHOLE_BYTES", 10_000)
        matrix = np.array([record["probs"] for record in records])
        assert rejection_reason(npy(np.asfortranarray(matrix)), Format.NPY) == "too_large"
        assert rejection_reason(npy(matrix), Format.NPY) == "not rejected"


def test_c5_repeated_text_of_a_parquet_file_is_stored_once() -> None:
    """A dictionary of one long text, for thousands of rows."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000), pa.array(["x" * 1_000_000]))
    content = table({"probs": [GOOD] * 1_000, "site": texts, "id": texts, "version": texts})
    (block,) = decode_file(content, Format.PARQUET)
    assert {str(reason) for _, reason in block.rejected} == {"bad_segment"}
    (block,) = decode_file(table({"probs": [GOOD] * 1_000, "id": texts}), Format.PARQUET)
    assert {str(reason) for _, reason in block.rejected} == {"wrong_type"}


@pytest.mark.parametrize("format_", [one for one in Format if not one.grows])
def test_a_damaged_file_yields_nothing(format_: Format) -> None:
    """Truncated or changed anywhere: rejected before its first block, or still valid."""
    random = np.random.default_rng(6)
    records = [RECORD | {"probs": one.tolist()} for one in random.dirichlet(np.ones(3), 9_000)]
    content = write(records, format_)
    whole = vectors_of(decode_file(content, format_))
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        cut = content[: int(share * len(content))]
        assert rejection_reason(cut, format_) in {"bad_file", "bad_header"}
    for place in random.integers(0, len(content), 25).tolist():
        changed = bytearray(content)
        changed[place] ^= 0x55
        blocks = []
        try:
            for block in stream().settled("file#1", io.BytesIO(changed), format_):
                blocks.append(block)  # noqa: PERF402 - blocks before an error count
        except RejectedFile:
            assert not blocks
        else:
            assert sum(block.rows for block in blocks) >= len(whole)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.ndjson.gz", "a.csv.gz", "a.CSV.GZ"])
def test_compressed_text_is_read_offline_with_the_same_limits(name: str, tmp_path: Path) -> None:
    text = LINE if "csv" not in name.lower() else b'probs\n"[0.7, 0.2, 0.1]"\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    assert len(read_file(path, offline_schema()).records.vectors) == 1
    path.write_bytes(gzip.compress(text)[:-3])
    with pytest.raises(RejectedFile, match=r"expected a whole gzip file, found a truncated one \(bad_file\)"):
        read_file(path, offline_schema())
    path.write_bytes(_gzip_of(bytes(MEBIBYTE), 64))
    with pytest.raises(RejectedFile, match=r"at most 200 times larger than compressed, found more \(too_large\)"):
        read_file(path, offline_schema())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(gzip.compress(LINE) + gzip.compress(LINE), "not rejected", id="two members"),
        pytest.param(gzip.compress(LINE) + bytes(100_000), "not rejected", id="filled up with zeros"),
        pytest.param(gzip.compress(b""), "not rejected", id="nothing inside"),
        pytest.param(gzip.compress(LINE) + b"rest", "bad_file", id="something behind"),
        pytest.param(gzip.compress(LINE) + gzip.compress(LINE)[:-2], "bad_file", id="second one cut short"),
        pytest.param(LINE, "bad_file", id="not packed"),
        pytest.param(b"", "bad_file", id="empty"),
        pytest.param(gzip.compress(LINE)[:-8] + bytes(8), "bad_file", id="wrong sum"),
    ],
)
def test_gzip_files_may_be_concatenated_and_padded_but_not_damaged(content: bytes, reason: str) -> None:
    """As for gzip itself."""
    assert rejection_reason(content, Format.JSONL_GZ) == reason
