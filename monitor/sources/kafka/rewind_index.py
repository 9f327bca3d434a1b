"""The offset from which a partition must be read again to rebuild its windows, and the commit metadata that carries it."""

import math
from typing import Annotated

import msgspec

MOST_ENTRIES = 128
"""More entries would shorten a rewind a little, and enlarge every checkpoint."""
_VERSION = 1
_LONGEST = 1_000
"""Brokers store 4,096 bytes of metadata per offset. Ours are about 120; longer ones are not ours."""

_Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]


class CommitMetadata(
    msgspec.Struct, frozen=True, rename={"version": "v", "rewind": "r", "fingerprint": "c", "topic_id": "t"}
):
    """The metadata of an offset committed to the group."""

    version: int
    rewind: _Offset
    """Where a member without stored windows starts reading."""
    fingerprint: str = ""
    """Of the settings that determine the content of windows."""
    topic_id: str = ""


_decoder = msgspec.json.Decoder(CommitMetadata)
_encoder = msgspec.json.Encoder()


def encode_metadata(rewind: int, fingerprint: str, topic_id: str) -> str:
    """Return the metadata to commit with an offset."""
    return _encoder.encode(CommitMetadata(_VERSION, rewind, fingerprint, topic_id)).decode()


def decode_metadata(text: str) -> CommitMetadata | None:
    """Return the metadata of another process; None if it is not from cpcmon, or of another version."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        metadata = _decoder.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return metadata if metadata.version == _VERSION else None


class RewindIndex:
    """The first offset and the newest event time of each stretch of a partition.

    The first stretch is dropped once all its records are older than the oldest in any window. Event times within a partition
    are not sorted: a stretch that is still needed keeps all later ones.
    """

    def __init__(self, entries: list[tuple[int, float]] | None = None) -> None:
        self._entries = list(entries or [])

    @property
    def entries(self) -> list[tuple[int, float]]:
        """First offsets, ascending, with the newest time up to the next."""
        return list(self._entries)

    @property
    def newest(self) -> float:
        """The newest event time; -inf without entries."""
        return max((time for _, time in self._entries), default=-math.inf)

    def first_needed(self, next_offset: int) -> int:
        """Return where a rewind must start; `next_offset` without entries."""
        return self._entries[0][0] if self._entries else next_offset

    def add(self, first_offset: int, newest: float) -> None:
        """Append a stretch."""
        self._entries.append((first_offset, newest))
        if len(self._entries) > MOST_ENTRIES:
            self._entries = [_joined(self._entries[i : i + 2]) for i in range(0, len(self._entries), 2)]

    def forget_before(self, oldest: float) -> None:
        """Drop the stretches before the oldest record in any window."""
        gone = next((i for i, (_, newest) in enumerate(self._entries) if newest >= oldest), len(self._entries))
        del self._entries[:gone]


def _joined(entries: list[tuple[int, float]]) -> tuple[int, float]:
    return entries[0][0], max(newest for _, newest in entries)
