"""The checkpoint of each file: its fields, encoding and rollback."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePath
from typing import Annotated

import msgspec

from monitor.records.record_batch import Format
from monitor.records.rejections import RejectedFile

_LONGEST = 300
KEY_BYTES = 16
VERSION = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file cannot be used."""

    reason: str
    explanation: str = ""
    """The decoder's explanation. Quotes nothing of the file."""

    @classmethod
    def of(cls, rejected: RejectedFile) -> "Failure":
        """Return the failure of a rejected file. The message adds the file's name."""
        text = f"expected {rejected.problem.expected}, found {rejected.problem.found}"
        return cls(str(rejected.reason), text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")

    def __str__(self) -> str:
        """Return the text for the log."""
        return f"{self.explanation} ({self.reason})" if self.explanation else self.reason


CRASH = Failure("crash")
"""Decoding the file kills the process."""
DECODER_ERROR = Failure("decoder_error")
"""The decoder raised an unexpected exception."""


_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Checksum = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class FileState(IntEnum):
    """The state of a file."""

    READING = 0
    """Read up to the offset; more may follow."""
    COMPLETE = 1
    """A whole file, read to its end."""
    FAILED = 2
    """Unusable as it is; see `reason`."""


class FileCheckpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The stored facts about one file. Contains neither its name nor its content."""

    version: _Natural
    format: Format
    state: FileState
    device: _Natural
    inode: _Natural
    """Hints only: inode numbers are reused."""
    size: _Natural
    modified_ns: int
    """Size and modification time when the checkpoint was made."""
    offset: _Natural = 0
    """The next unread byte."""
    checksum: _Checksum = 0
    """CRC-32 of everything before the offset; of the whole file for whole files."""
    head: _Checksum = 0
    """CRC-32 of the first bytes, once the offset is large; see `file_identity`."""
    tail: _Checksum = 0
    """CRC-32 of the last bytes before the offset, once it is large."""
    line: _Natural = 1
    """Number of the next unread line."""
    rows: _Natural = 0
    """For whole files: rows delivered."""
    generation: _Natural = 0
    """How often the file restarted from offset 0."""
    skipping: bool = False
    """Whether the offset is within a line that is too long."""
    partial: bool = False
    """Whether its incomplete last line has been counted."""
    non_json_lines: _Natural | None = 0
    """See `TextPiece.non_json_lines`."""
    skip_to: _Natural = 0
    """Bytes before this are not decoded: they were there before the directory was watched."""
    changed_at: float = 0.0
    """Time of the last observed change, in Unix seconds by our own clock."""
    gone_at: float | None = None
    """When it was first missing."""
    reason: str = ""
    """Why it failed."""
    previous: "FileCheckpoint | None" = None
    """The checkpoint before a restart, as long as a file of another name may continue it."""
    explanation: str = ""
    """The decoder's explanation of the failure."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FileCheckpoint)


def encoded(checkpoint: FileCheckpoint) -> bytes:
    """Return the stored form of a checkpoint."""
    return _encoder.encode(checkpoint)


def decoded(value: bytes) -> FileCheckpoint | None:
    """Return a stored checkpoint; None if it is damaged or of another version."""
    try:
        checkpoint = _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return checkpoint if checkpoint.version == VERSION else None


class Keys:
    """Keyed hashes of relative paths: they identify files without revealing names."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(key=key[:64], digest_size=KEY_BYTES)

    def __call__(self, name: str) -> bytes:
        """Return the key of a file."""
        state = self._hash.copy()
        state.update(os.fsencode(name))
        return state.digest()


def file_key(name: PurePath | str, key: bytes) -> bytes:
    """Return the key of one file, by its relative path."""
    return Keys(key)(os.fspath(name))


def display_name(key: bytes) -> str:
    """Return the name of a file in messages."""
    return f"file#{key[:4].hex()}"


class FileCheckpoints:
    """The checkpoints of all files: as of the last delivery, and as last committed.

    They stay encoded: 100 bytes each instead of 500, for up to a million files.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._committed: dict[bytes, bytes | None] = {}
        """By changed key, the committed value."""

    def __contains__(self, key: bytes) -> bool:
        """Return whether there is a checkpoint."""
        return key in self._values

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over all keys."""
        return iter(self._values)

    def restore(self, values: Mapping[bytes, bytes]) -> int:
        """Load committed values; return how many were damaged."""
        good = {key: value for key, value in values.items() if len(key) == KEY_BYTES and decoded(value) is not None}
        self._values = good
        self._committed.clear()
        return len(values) - len(good)

    def get(self, key: bytes) -> FileCheckpoint | None:
        """Return a checkpoint."""
        value = self._values.get(key)
        return None if value is None else decoded(value)

    def put(self, key: bytes, checkpoint: FileCheckpoint | None) -> bytes | None:
        """Change or delete a checkpoint; return the value to commit."""
        self._committed.setdefault(key, self._values.get(key))
        if checkpoint is None:
            self._values.pop(key, None)
            return None
        value = encoded(checkpoint)
        self._values[key] = value
        return value

    def commit(self) -> None:
        """Accept all changes."""
        self._committed.clear()

    def roll_back(self) -> Iterable[bytes]:
        """Undo all changes since the last commit; return their keys."""
        changed, self._committed = self._committed, {}
        for key, value in changed.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return changed.keys()
