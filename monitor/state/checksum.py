"""Checksums of rows: SQLite's own check does not see a flipped bit in a value."""

import zlib

Value = str | int | float | bytes


def checksum(content: bytes, *beside: Value) -> int:
    """Return the checksum of a row: its content and the values beside it."""
    return zlib.crc32(content, zlib.crc32(repr(beside).encode()))
