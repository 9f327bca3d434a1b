"""Writes the same records in every format, for tests."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, ipc, parquet

from monitor.records.offline import Decoded, offline_schema, read_file
from monitor.records.record_schema import RecordSchema

GOOD = [0.7, 0.2, 0.1]

SUFFIXES = (".jsonl", ".csv", ".npz", ".parquet", ".arrow", ".feather", ".ipc")
RAGGED_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix != ".npz")
"""Formats whose vectors may differ in length."""


def write_records(folder: Path, suffix: str, vectors: Sequence[Any], labels: Sequence[Any] | None = None) -> Path:
    """Write records with fields `probs` and, if there are labels, `label`."""
    path = folder / f"records{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in _objects(vectors, labels)))
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["probs"] if labels is None else ["probs", "label"])
            for record in _objects(vectors, labels):
                rows.writerow([json.dumps(record["probs"]), *([record["label"]] if labels is not None else [])])
    elif suffix == ".npz":
        arrays: dict[str, Any] = {"probs": np.array(vectors)} | ({} if labels is None else {"label": np.array(labels)})
        np.savez(path, **arrays)
    else:
        write_table(path, {"probs": pa.array(vectors)} | ({} if labels is None else {"label": pa.array(labels)}))
    return path


def write_table(path: Path, columns: dict[str, Any]) -> Path:
    """Write Arrow columns in the format of the suffix; `.ipc` is a stream."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".ipc":
        with ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table)
    elif path.suffix == ".arrow":
        with ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    else:
        feather.write_feather(table, str(path))
    return path


def read_bytes(folder: Path, name: str, content: bytes, layout: RecordSchema | None = None) -> Decoded:
    """Write these bytes to a file and read it."""
    path = folder / name
    path.write_bytes(content)
    return read_file(path, layout or offline_schema())


def reported(decoded: Decoded) -> list[str]:
    """Return the rejections as text."""
    return [str(rejection) for rejection in decoded.rejections.first]


def reasons(decoded: Decoded) -> list[str]:
    """Return the reasons of the first rejections, in order."""
    return [str(rejection.reason) for rejection in decoded.rejections.first]


def _objects(vectors: Sequence[Any], labels: Sequence[Any] | None) -> list[dict[str, Any]]:
    if labels is None:
        return [{"probs": vector} for vector in vectors]
    return [{"probs": vector, "label": label} for vector, label in zip(vectors, labels, strict=True)]
