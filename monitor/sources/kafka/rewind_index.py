"""From which offset a partition must be read again to rebuild its windows, and how the group is told."""

import math
from typing import Annotated

import msgspec

MOST_ENTRIES = 128
"""More would make a rewind a little shorter, and every commit of a position larger."""
_VERSION = 1
_LONGEST = 1_000
"""Brokers keep 4,096 bytes beside an offset. Ours are about 120; what is longer is not ours."""

_Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]


class Note(msgspec.Struct, frozen=True, rename={"version": "v", "rewind": "r", "fingerprint": "c", "topic_id": "t"}):
    """What is kept beside an offset that is committed to the group."""

    version: int
    rewind: _Offset
    """Whoever has no stored windows reads on from here."""
    fingerprint: str = ""
    """Of the settings that decide what windows hold."""
    topic_id: str = ""


_decoder = msgspec.json.Decoder(Note)
_encoder = msgspec.json.Encoder()


def written(rewind: int, fingerprint: str, topic_id: str) -> str:
    """Return the text that is committed beside an offset."""
    return _encoder.encode(Note(_VERSION, rewind, fingerprint, topic_id)).decode()


def understood(text: str) -> Note | None:
    """Return what another process wrote beside its offset; None when it was no cpcmon, or one that speaks otherwise."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        note = _decoder.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return note if note.version == _VERSION else None


class RewindIndex:
    """Of each stretch of a partition, its first offset and its newest event time.

    A stretch at the front can go once all its records are older than the oldest that any window holds. Times within a
    partition need not rise: a stretch that still matters keeps all that come after it.
    """

    def __init__(self, entries: list[tuple[int, float]] | None = None) -> None:
        self._entries = list(entries or [])

    @property
    def entries(self) -> list[tuple[int, float]]:
        """First offsets, rising, each with the newest time up to the next."""
        return list(self._entries)

    @property
    def newest(self) -> float:
        """The newest event time of all; -inf when there is none."""
        return max((time for _, time in self._entries), default=-math.inf)

    def first_needed(self, next_offset: int) -> int:
        """Return where reading must begin again, given where it goes on now."""
        return self._entries[0][0] if self._entries else next_offset

    def add(self, first_offset: int, newest: float) -> None:
        """Take one more stretch, after all others."""
        self._entries.append((first_offset, newest))
        if len(self._entries) > MOST_ENTRIES:
            self._entries = [_joined(self._entries[i : i + 2]) for i in range(0, len(self._entries), 2)]

    def forget_before(self, oldest: float) -> None:
        """Drop what lies before the oldest record that is held."""
        gone = next((i for i, (_, newest) in enumerate(self._entries) if newest >= oldest), len(self._entries))
        del self._entries[:gone]


def _joined(entries: list[tuple[int, float]]) -> tuple[int, float]:
    return entries[0][0], max(newest for _, newest in entries)
