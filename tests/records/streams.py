"""Writes and decodes records of streams, for tests."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from monitor.records.decoder import RecordDecoder
from monitor.records.offline import offline_schema
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.record_schema import ModelFormat, RecordFields, RecordSchema
from monitor.records.rejections import RejectedFile
from monitor.records.vectors import Singles

KEY = b"0123456789abcdef"
GOOD = [0.7, 0.2, 0.1]
CLASSES = ("cat", "dog", "owl")
MODEL = ModelFormat("density", CLASSES, segment_fields=("site",))
LINE = b'{"probs": [0.7, 0.2, 0.1]}\n'
RECORD: dict[str, Any] = {
    "model": "density",
    "version": "2.1",
    "id": "study-1",
    "time": 1760000000.5,
    "site": "A",
    "probs": GOOD,
}
ALL_FORMATS = tuple(Format)


def stream(*models: ModelFormat, fields: RecordFields | None = None, keep_raw: bool = False) -> RecordDecoder:
    """Return a decoder of the default model, or of others."""
    return RecordDecoder(models or (MODEL,), fields, hash_key=KEY, keep_raw=keep_raw)


def decode_text(
    data: bytes, format_: Format = Format.JSONL, decoder: RecordDecoder | None = None, **words: Any
) -> RecordBatch:
    """Decode lines, and check that none is lost."""
    decoded = (decoder or stream()).text(TextPiece("file#1", format_, data, **words))
    check_numbers(decoded)
    assert decoded.rows == data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    return decoded


def decode_file(
    content: bytes, format_: Format, decoder: RecordDecoder | None = None, *, skip: int = 0
) -> list[RecordBatch]:
    """Decode a complete file, and check that no row is lost."""
    blocks = list((decoder or stream()).settled("file#1", io.BytesIO(content), format_, skip=skip))
    for block in blocks:
        check_numbers(block)
    return blocks


def decode_offline(content: bytes, format_: Format, schema: RecordSchema | None = None) -> list[RecordBatch]:
    """Decode a complete file as an offline command does, with the same classes."""
    schema = schema or offline_schema(classes=CLASSES)
    decoder = RecordDecoder(schema.models, schema.fields, hash_key=b"", offline=True)
    return list(decoder.settled("file#1", io.BytesIO(content), format_))


def explained(blocks: Sequence[RecordBatch]) -> list[tuple[int, str]]:
    """Return the line or row and the reason of rejected records, which the offline commands explain."""
    return [(number, str(rejection.reason)) for block in blocks for number, rejection in block.explained]


def check_numbers(decoded: RecordBatch) -> None:
    """Check that every line or row was accepted, rejected or ignored."""
    assert decoded.accepted + decoded.rejected.total() + decoded.ignored == decoded.rows
    assert len(decoded.pointers) == min(2_000, decoded.rejected.total())
    numbers = [pointer.number for pointer in decoded.pointers]
    assert numbers == sorted(set(numbers))


def rejection_reason(
    content: bytes, format_: Format, decoder: RecordDecoder | None = None, *, offline: bool = False
) -> str:
    """Return why a whole file is rejected."""
    try:
        decode_offline(content, format_) if offline else decode_file(content, format_, decoder)
    except RejectedFile as rejected:
        return str(rejected.reason) if str(rejected).startswith("file#1") else "no place named"
    return "not rejected"


def vectors_of(blocks: Sequence[RecordBatch], model: str = "density") -> Singles:
    """Return all accepted vectors of a model."""
    some = [block.models[model].vectors for block in blocks if model in block.models]
    return np.concatenate(some)


def reasons_of(blocks: Sequence[RecordBatch]) -> dict[tuple[str, str], int]:
    """Return the rejections."""
    found: dict[tuple[str, str], int] = {}
    for block in blocks:
        for (model, reason), count in block.rejected.items():
            found[model, str(reason)] = found.get((model, str(reason)), 0) + count
    return found


def write(records: Sequence[dict[str, Any]], format_: Format) -> bytes:
    """Write records in a format; all of them have the same fields."""
    names = list(records[0])
    columns = {name: [record[name] for record in records] for name in names}
    match format_:
        case Format.JSONL | Format.JSONL_GZ:
            text = b"".join(json.dumps(record).encode() + b"\n" for record in records)
            return text if format_ is Format.JSONL else gzip.compress(text)
        case Format.CSV | Format.CSV_GZ:
            text = _csv(names, records)
            return text if format_ is Format.CSV else gzip.compress(text)
        case Format.NPY:
            return npy(np.array(columns["probs"]))
        case Format.NPZ:
            return npz(**{name: np.array(values) for name, values in columns.items()})
        case _:
            return table({name: pa.array(values) for name, values in columns.items()}, format_)


def _csv(names: list[str], records: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(names)
    rows.writerows([_cell(record[name]) for name in names] for record in records)
    return text.getvalue().encode()


def npy(array: Any) -> bytes:
    """Return an array as a file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    """Return arrays as a file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def table(columns: dict[str, Any], format_: Format = Format.PARQUET) -> bytes:
    """Return Arrow columns as a file."""
    file = io.BytesIO()
    whole = pa.table(columns)
    if format_ is Format.PARQUET:
        parquet.write_table(whole, file)
    else:
        with ipc.new_file(file, whole.schema) as opened:
            opened.write_table(whole)
    return file.getvalue()


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value
