"""Row checksums: SQLite's own integrity check does not detect a flipped bit in a value."""

import zlib

Value = str | int | float | bytes


def checksum(content: bytes, *beside: Value) -> int:
    """Return the checksum of a row: its content and its other values."""
    return zlib.crc32(content, zlib.crc32(repr(beside).encode()))
