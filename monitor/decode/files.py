"""A whole file into columns: the format is chosen by the file's suffix, never by looking inside."""

from pathlib import Path

from monitor.decode.arrow import read_ipc, read_parquet
from monitor.decode.batch import Decoded
from monitor.decode.csv import read_csv
from monitor.decode.jsonl import read_jsonl
from monitor.decode.layout import Layout
from monitor.decode.npy import read_npy, read_npz
from monitor.errors import InvalidInput, UsageError

_READERS = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".npz": read_npz,
    ".parquet": read_parquet,
    ".pq": read_parquet,
    ".arrow": read_ipc,
    ".feather": read_ipc,
    ".ipc": read_ipc,
}


def read_file(path: Path, layout: Layout, *, labels: Path | None = None) -> Decoded:
    """Read a whole file; `labels` is a second file with the labels of an .npy file, which has no place for them.

    Bad records are counted in the answer; InvalidInput means that the file as a whole cannot be used.
    """
    suffix = path.suffix.lower()
    if suffix != ".npy" and suffix not in _READERS:
        known = ", ".join([*_READERS, ".npy"])
        raise InvalidInput(f"{path}: expected a file named {known}, found {suffix or 'no suffix'!r}")
    if labels is not None and suffix != ".npy":
        raise UsageError(f"{labels}: expected a file of labels only beside an .npy file, found {path}")
    try:
        for file in (path, labels):
            if file is not None and not file.is_file():
                found = "a directory" if file.is_dir() else "something else" if file.exists() else "none"
                raise InvalidInput(f"{file}: expected a file, found {found}")
        return read_npy(path, layout, labels) if suffix == ".npy" else _READERS[suffix](path, layout)
    except OSError as error:
        raise InvalidInput(
            f"{error.filename or path}: expected a readable file, found {error.strerror or error}"
        ) from error
