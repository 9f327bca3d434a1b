"""Reads whole files for the offline commands. The format is chosen by the suffix."""

from pathlib import Path

from monitor.errors import InvalidInput, UsageError
from monitor.records.formats.arrow_columns import read_ipc, read_parquet
from monitor.records.layout import Layout
from monitor.records.offline.csv_file import read_csv
from monitor.records.offline.jsonl_file import read_jsonl
from monitor.records.offline.npy_file import read_npy, read_npz
from monitor.records.offline.offline_batch import Decoded
from monitor.records.record_batch import SUFFIXES, Format, format_of

_READERS = {
    Format.JSONL: read_jsonl,
    Format.JSONL_GZ: read_jsonl,
    Format.CSV: read_csv,
    Format.CSV_GZ: read_csv,
    Format.NPZ: read_npz,
    Format.PARQUET: read_parquet,
    Format.ARROW: read_ipc,
}


def read_file(path: Path, layout: Layout, *, labels: Path | None = None) -> Decoded:
    """Read a whole file; `labels` is the file of labels beside an .npy file.

    Bad records are counted in the result; raises InvalidInput if the whole file cannot be used.
    """
    format_ = format_of(path.name) if path.suffix else None
    if format_ is None:
        raise InvalidInput(f"{path}: expected a file named {', '.join(SUFFIXES)}, found {path.suffix or 'no suffix'!r}")
    if labels is not None and format_ is not Format.NPY:
        raise UsageError(f"{labels}: expected a file of labels only beside an .npy file, found {path}")
    try:
        for file in (path, labels):
            if file is not None and not file.is_file():
                found = "a directory" if file.is_dir() else "something else" if file.exists() else "none"
                raise InvalidInput(f"{file}: expected a file, found {found}")
        return read_npy(path, layout, labels) if format_ is Format.NPY else _READERS[format_](path, layout)
    except OSError as error:
        raise InvalidInput(
            f"{error.filename or path}: expected a readable file, found {error.strerror or error}"
        ) from error
