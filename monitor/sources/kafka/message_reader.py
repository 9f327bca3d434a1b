"""Fetched messages into deliveries: tombstones and repeated messages dropped, damaged batches skipped.

A damaged batch is first fetched again a few times: it may have been damaged in transit, or on one replica only. Then
its end is searched: every fetch from an offset within the batch fails, so the steps grow until one lands behind it, and
then a binary search narrows down the first readable offset.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from monitor.records.message_decoder import Messages
from monitor.records.record_batch import RecordBatch
from monitor.sources.base import Delivery
from monitor.sources.kafka.dead_letters import MOST_WAITING, DeadLetters, Letter, letters
from monitor.sources.kafka.kafka_options import KafkaEvent
from monitor.sources.kafka.partition_checkpoint import (
    Fetched,
    Partition,
    PartitionCheckpoint,
    TrackedPartition,
    encoded,
)

FETCHED_AGAIN = 5
_FUTURE_SECONDS = 86400.0
"""Later event times are invalid; windows never use a later one."""


@dataclass(slots=True)
class _Search:
    start: int
    failed: int
    tried: int
    again: int = FETCHED_AGAIN
    worked: int | None = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Skipped offsets, end exclusive."""

    start: int
    end: int


class BatchSkipper:
    """The searches in progress, one for each partition with a damaged batch."""

    def __init__(self) -> None:
        self._searches: dict[Partition, _Search] = {}

    def __contains__(self, partition: Partition) -> bool:
        """Return whether a search is in progress."""
        return partition in self._searches

    def failed(self, partition: Partition, offset: int, end: int) -> int:
        """Return the next offset to try, after a fetch failed; never behind the end of the log."""
        search = self._searches.get(partition)
        if search is None or offset != search.tried:
            search = self._searches[partition] = _Search(offset, offset, offset)
        search.failed = offset
        if search.again:
            search.again -= 1
            return offset
        if search.worked is None:
            search.tried = max(offset + 1, min(offset + search.step, end))
            search.step *= 2
        else:
            search.tried = max(offset + 1, (offset + search.worked) // 2)
        return search.tried

    def worked(self, partition: Partition) -> int | SkippedRange:
        """Return the next offset to try, after a fetch succeeded; or the skipped range."""
        search = self._searches[partition]
        if search.tried == search.start:
            del self._searches[partition]
            return SkippedRange(search.start, search.start)
        if search.tried - search.failed > 1:
            search.worked = search.tried
            search.tried = (search.failed + search.worked) // 2
            return search.tried
        del self._searches[partition]
        return SkippedRange(search.start, search.tried)

    def forget(self, partition: Partition) -> None:
        """The partition is resolved again, or was revoked."""
        self._searches.pop(partition, None)


class DecodesMessages(Protocol):
    """Decodes messages; see `monitor.records.message_decoder`."""

    def decode(self, where: str, messages: Messages) -> RecordBatch:
        """Decode messages; never raises."""


class MessageReader:
    """Turns fetched messages into deliveries."""

    def __init__(
        self, decoder: DecodesMessages, fingerprint: str, dead_letters: DeadLetters | None, *, with_payload: bool
    ) -> None:
        self._decoder = decoder
        self._fingerprint = fingerprint
        self._dead_letters = dead_letters
        self._with_payload = with_payload
        self._letters: list[Letter] = []
        """Of deliveries that are not committed yet."""

    def deliveries(
        self, tracked: TrackedPartition, fetched: Fetched, now: float
    ) -> Iterator[tuple[Delivery, PartitionCheckpoint]]:
        """Yield what was fetched of a partition with the checkpoint behind it; usually one delivery."""
        counted: Counter[str] = Counter()
        fresh = fetched.from_offset(tracked.next_offset)
        if len(fresh) < len(fetched):
            counted[KafkaEvent.MESSAGES_REPEATED] += len(fetched) - len(fresh)
        if not len(fresh):
            return
        counted[KafkaEvent.MESSAGES_READ] += len(fresh)
        messages = _messages(fresh)
        if len(messages.values) < len(fresh):
            counted[KafkaEvent.TOMBSTONES] += len(fresh) - len(messages.values)
        counted[KafkaEvent.BYTES_READ] += sum(map(len, messages.values))
        shard, last = tracked.partition.shard, fresh.offsets[-1]
        parts = list(self._decoded(shard, messages))
        for place, (some, batch) in enumerate(parts, start=1):
            warnings: tuple[str, ...] = ()
            if batch is None:
                counted[KafkaEvent.DECODER_ERRORS] += 1
                warnings = (
                    f"{shard}: internal error in the decoder on the message at offset {some.offsets[0]}; skipped",
                )
            else:
                self._add_letters(tracked, some, batch)
            # The last part includes trailing tombstones.
            next_offset = 1 + (last if place == len(parts) else some.offsets[-1])
            first = fresh.offsets[0] if place == 1 else some.offsets[0]
            tracked.advance(first, next_offset, fresh.leader_epoch, None if batch is None else _newest(batch, now))
            checkpoint = tracked.checkpoint(self._fingerprint)
            delivery = Delivery(
                shard,
                batch or RecordBatch(),
                {tracked.partition.key: encoded(checkpoint)},
                counted,
                warnings=warnings,
                shard=shard,
            )
            yield delivery, checkpoint
            counted = Counter()

    def _decoded(self, shard: str, messages: Messages) -> Iterator[tuple[Messages, RecordBatch | None]]:
        if not messages.values:
            yield messages, RecordBatch()
            return
        try:
            yield messages, self._decoder.decode(shard, messages)
        except Exception:  # noqa: BLE001 - unexpected; one message must not block all that follow
            half = len(messages.values) // 2
            if not half:
                yield messages, None
                return
            yield from self._decoded(shard, _part(messages, slice(None, half)))
            yield from self._decoded(shard, _part(messages, slice(half, None)))

    def _add_letters(self, tracked: TrackedPartition, messages: Messages, batch: RecordBatch) -> None:
        if self._dead_letters is None or not batch.pointers:
            return
        values = messages.values if self._with_payload else None
        # More than the queue holds would be dropped and counted there anyway.
        most = max(0, 2 * MOST_WAITING - len(self._letters))
        self._letters.extend(islice(letters(tracked.partition, batch.pointers, messages.offsets, values), most))

    def acknowledge(self) -> None:
        """What was delivered is committed: send its dead letters."""
        if self._dead_letters is not None:
            for letter in self._letters:
                self._dead_letters.put(letter)
        self._letters.clear()

    def roll_back(self) -> None:
        """What was delivered comes again, with its dead letters."""
        self._letters.clear()


def _messages(fetched: Fetched) -> Messages:
    times = np.asarray(fetched.times_ms, dtype=np.float64)
    times = np.where(times < 0.0, np.nan, times / 1000.0)
    values = [value for value in fetched.values if value is not None]
    if len(values) == len(fetched):
        return Messages(values, fetched.offsets, times)
    rows = [row for row, value in enumerate(fetched.values) if value is not None]
    return Messages(values, [fetched.offsets[row] for row in rows], times[rows])


def _part(messages: Messages, rows: slice) -> Messages:
    return Messages(messages.values[rows], messages.offsets[rows], messages.times[rows])


def _newest(batch: RecordBatch, now: float) -> float | None:
    """Return the newest event time of all records, as windows might use it; None without records.

    Too late is safe, it only lengthens a rewind; too early would leave out records.
    """
    newest: float | None = None
    for records in batch.models.values():
        at = records.at
        if len(at):
            latest = float(np.where(np.isnan(at), now, np.minimum(at, now + _FUTURE_SECONDS)).max())
            newest = latest if newest is None else max(newest, latest)
    return newest
