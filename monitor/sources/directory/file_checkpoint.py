"""The checkpoint of each file: its row, how it is encoded, and how changes are rolled back."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePath
from typing import Annotated

import msgspec

from monitor.records.record_batch import Format
from monitor.records.rejections import RefusedFile

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason, and what the decoder has to say about it."""

    reason: str
    explanation: str = ""
    """What was expected and what was found instead, for whoever made the file; it quotes nothing of it."""

    @classmethod
    def of(cls, refused: RefusedFile, key: bytes) -> "Failure":
        """Return what the decoder says of a file, without the file's name, which stands wherever this is told."""
        said = str(refused).partition("\n")[0].removeprefix(called(key)).lstrip(":, ")
        said = said.removesuffix(f" ({refused.reason})").strip()
        return cls(str(refused.reason), said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…")

    def __str__(self) -> str:
        """Return the sentence for the log."""
        return f"{self.explanation} ({self.reason})" if self.explanation else self.reason


CRASH = Failure("crash")
"""Of a file whose decoding kills the process."""
DECODER_ERROR = Failure("decoder_error")
"""Of a file on which the decoder raised something that it should not."""


KEY_BYTES = 16
VERSION = 1

_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Checksum = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class FileState(IntEnum):
    """Where a file stands."""

    READING = 0
    """It has been read up to a place, and more may come."""
    COMPLETE = 1
    """A file that does not grow, read to its end."""
    FAILED = 2
    """It cannot be used as it is; `reason` says why."""


class FileCheckpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What is remembered of one file. Nothing here names it, or says what it holds."""

    version: _Natural
    format: Format
    state: FileState
    device: _Natural
    inode: _Natural
    """Both are hints only: numbers of deleted files are given to new ones."""
    size: _Natural
    modified_ns: int
    """Size and time of change as they were when the row was made."""
    offset: _Natural = 0
    """Where the next unread byte is."""
    checksum: _Checksum = 0
    """CRC-32 of everything before it; of the whole file where it does not grow."""
    head: _Checksum = 0
    """CRC-32 of the first bytes, once the offset is large; see `identity`."""
    tail: _Checksum = 0
    """CRC-32 of the last bytes before the offset, once that is large."""
    line: _Natural = 1
    """Number of the next unread line."""
    rows: _Natural = 0
    """For a file that does not grow: how many of its rows have been delivered."""
    generation: _Natural = 0
    """How often the file began anew."""
    skipping: bool = False
    """Whether the offset lies within a line that was too long to be kept."""
    partial: bool = False
    """Whether its unfinished last line has been counted."""
    unproven: _Natural | None = 0
    """See `TextPiece.unproven`."""
    skip_to: _Natural = 0
    """Bytes before this are read but not decoded: they were there before the directory was watched."""
    changed_at: float = 0.0
    """When it was last seen to change, in Unix seconds by our own clock."""
    gone_at: float | None = None
    """When it was first seen to be gone."""
    reason: str = ""
    """Why it failed."""
    previous: "FileCheckpoint | None" = None
    """The row before the file began anew, as long as a file of another name may turn out to continue it."""
    explanation: str = ""
    """What the decoder said when it failed."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FileCheckpoint)


def encoded(row: FileCheckpoint) -> bytes:
    """Return a row as it is kept."""
    return _encoder.encode(row)


def decoded(value: bytes) -> FileCheckpoint | None:
    """Return the row that was kept, or None when the value is damaged or of another version."""
    try:
        row = _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return row if row.version == VERSION else None


class Keys:
    """Names files without telling their names: keyed hashes of paths relative to the directory."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(key=key[:64], digest_size=KEY_BYTES)

    def __call__(self, name: str) -> bytes:
        """Return the key of a file."""
        state = self._hash.copy()
        state.update(os.fsencode(name))
        return state.digest()


def key_of(name: PurePath | str, key: bytes) -> bytes:
    """Return the key of one file, by its path relative to the directory."""
    return Keys(key)(os.fspath(name))


def called(key: bytes) -> str:
    """Return what messages call a file."""
    return f"file#{key[:4].hex()}"


class FileCheckpoints:
    """The rows of all files, as of the last delivery, and as they were when last committed.

    A million rows are kept, so they stay encoded: about 100 bytes each instead of 500.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._committed: dict[bytes, bytes | None] = {}
        """Of each row that changed since the last commit, what it was."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        """Tell whether there is a row."""
        return key in self._values

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over all keys."""
        return iter(self._values)

    def restore(self, values: Mapping[bytes, bytes]) -> int:
        """Take over committed values, and return how many were damaged and left out."""
        good = {key: value for key, value in values.items() if len(key) == KEY_BYTES and decoded(value) is not None}
        self._values = good
        self._committed.clear()
        return len(values) - len(good)

    def row(self, key: bytes) -> FileCheckpoint | None:
        """Return a row."""
        value = self._values.get(key)
        return None if value is None else decoded(value)

    def put(self, key: bytes, row: FileCheckpoint | None) -> bytes | None:
        """Change or forget a row, and return the value to be committed."""
        self._committed.setdefault(key, self._values.get(key))
        if row is None:
            self._values.pop(key, None)
            return None
        value = encoded(row)
        self._values[key] = value
        return value

    def commit(self) -> None:
        """Let go of what rows were before."""
        self._committed.clear()

    def roll_back(self) -> Iterable[bytes]:
        """Make all rows what they were when last committed, and return the keys of those that changed."""
        changed, self._committed = self._committed, {}
        for key, value in changed.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return changed.keys()
