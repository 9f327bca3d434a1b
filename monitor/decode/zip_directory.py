"""The directory at the end of a ZIP file, measured before it is read: each of its entries takes far more in memory."""

import os
import struct
from typing import BinaryIO

from monitor.decode.rejections import Problem, Reason

MAX_DIRECTORY_BYTES = 1 << 20
"""More than 10,000 arrays with names of usual length need."""

# The record at the end of the file, and before it, for large files, a locator and a larger record.
_END, _END_SIZE = b"PK\5\6", 22
_LOCATOR_64, _LOCATOR_64_SIZE = b"PK\6\7", 20
_END_64, _END_64_SIZE = b"PK\6\6", 56
_LONGEST_COMMENT = 1 << 16


def check_directory(where: str, file: BinaryIO) -> None:
    """Refuse a file whose directory is too large; one that is no ZIP file is left to those who read it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_COMMENT - _END_SIZE - _LOCATOR_64_SIZE - _END_64_SIZE))
    tail = file.read()
    file.seek(0)
    # The same record that Python's module finds.
    without_comment = tail[-_END_SIZE:].startswith(_END) and tail.endswith(b"\0\0")
    place = len(tail) - _END_SIZE if without_comment else tail.rfind(_END)
    if place < 0 or len(tail) < place + _END_SIZE:
        return
    (found,) = struct.unpack_from("<I", tail, place + 12)
    larger = place - _LOCATOR_64_SIZE - _END_64_SIZE
    if larger >= 0 and tail.startswith(_LOCATOR_64, larger + _END_64_SIZE) and tail.startswith(_END_64, larger):
        (found,) = struct.unpack_from("<Q", tail, larger + 40)
    if found > MAX_DIRECTORY_BYTES:
        expected = f"a directory of at most {MAX_DIRECTORY_BYTES >> 20} MiB"
        raise Problem(Reason.TOO_LARGE, expected, f"{found / (1 << 20):,.1f} MiB").of_file(where)
