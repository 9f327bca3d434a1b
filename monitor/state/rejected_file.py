"""`rejected.jsonl`: one JSON line per rejected record, with location and reason, without content."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from monitor.records.record_batch import Pointer

NAME = "rejected.jsonl"
MOST_BYTES = 64 << 20


class RejectionLog:
    """Appends to the file, and rotates it when it is large."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = folder / NAME
        self._most_bytes = most_bytes

    def append(self, rejected: Iterable[tuple[str, str, Pointer]], now: float) -> None:
        """Append rejected records. On a full disk they are still counted, and the latest are in the database."""
        lines = [msgspec.json.encode(_line(*one, now)) for one in rejected]
        if not lines:
            return
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"\n".join(lines) + b"\n")
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if size > self._most_bytes:
            self._path.replace(self._path.with_name(f"{NAME}.1"))


def _line(source: str, origin: str, pointer: Pointer, now: float) -> dict[str, Any]:
    """Return the known fields of a pointer."""
    fields = msgspec.to_builtins(pointer)
    raw = fields.pop("raw")
    line = {"at": round(now, 3), "source": source, "file": origin}
    line |= {name: value for name, value in fields.items() if value is not None}
    return line if raw is None else line | {"raw": raw}
