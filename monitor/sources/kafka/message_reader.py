"""Fetched messages into deliveries: tombstones and duplicates dropped, damaged batches skipped.

It is fetched some more times first: what was damaged on its way, or on one replica, may be whole the next time.

From an offset within the batch every fetch fails. First the steps grow, until one lands behind the batch; then the place
between the last that failed and the first that worked is halved, until they are neighbours.
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
from monitor.sources.kafka.events import KafkaEvent
from monitor.sources.kafka.partition import Fetched, Partition
from monitor.sources.kafka.partition_checkpoint import PartitionCheckpoint, TrackedPartition, encoded

FETCHED_AGAIN = 5


@dataclass(slots=True)
class _Search:
    start: int
    failed: int
    tried: int
    again: int = FETCHED_AGAIN
    worked: int | None = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets that were passed over, from one up to another."""

    start: int
    end: int


class Skipping:
    """Searches under way, one for each partition that has a damaged batch."""

    def __init__(self) -> None:
        self._searches: dict[Partition, _Search] = {}

    def __contains__(self, partition: Partition) -> bool:
        """Tell whether a search is under way."""
        return partition in self._searches

    def failed(self, partition: Partition, offset: int, end: int) -> int:
        """Return where to try next, after a fetch at an offset failed; never behind the end of the log."""
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

    def worked(self, partition: Partition) -> int | Skipped:
        """Return where to try next, after a fetch brought messages where we tried; or what was passed over."""
        search = self._searches[partition]
        if search.tried == search.start:
            del self._searches[partition]
            return Skipped(search.start, search.start)
        if search.tried - search.failed > 1:
            search.worked = search.tried
            search.tried = (search.failed + search.worked) // 2
            return search.tried
        del self._searches[partition]
        return Skipped(search.start, search.tried)

    def forget(self, partition: Partition) -> None:
        """The partition is placed anew, or others have it."""
        self._searches.pop(partition, None)


_FUTURE_SECONDS = 86400.0
"""Event times further ahead are no event times; whatever a window makes of them is not later than this."""


class DecodesMessages(Protocol):
    """What makes records of messages; see `monitor.records.message_decoder`."""

    def decode(self, where: str, messages: Messages) -> RecordBatch:
        """Decode messages; never raises, whatever they hold."""


class Reader:
    """Makes deliveries of what was fetched."""

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
        """Yield what was fetched of a partition, and where it stands then; mostly as one delivery."""
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
        pieces = list(self._decoded(shard, messages))
        for place, (some, arrived) in enumerate(pieces, start=1):
            warnings: tuple[str, ...] = ()
            if arrived is None:
                counted[KafkaEvent.DECODER_ERRORS] += 1
                warnings = (
                    f"{shard}: the decoder failed on the message at offset {some.offsets[0]}; it is passed over",
                )
            else:
                self._keep_letters(tracked, some, arrived)
            # The last piece takes along the tombstones at the end.
            next_offset = 1 + (last if place == len(pieces) else some.offsets[-1])
            first = fresh.offsets[0] if place == 1 else some.offsets[0]
            tracked.taken(first, next_offset, fresh.leader_epoch, None if arrived is None else _newest(arrived, now))
            position = tracked.position(self._fingerprint)
            delivery = Delivery(
                shard,
                arrived or RecordBatch(),
                {tracked.partition.key: encoded(position)},
                counted,
                warnings=warnings,
                shard=shard,
            )
            yield delivery, position
            counted = Counter()

    def _decoded(self, shard: str, messages: Messages) -> Iterator[tuple[Messages, RecordBatch | None]]:
        if not messages.values:
            yield messages, RecordBatch()
            return
        try:
            yield messages, self._decoder.decode(shard, messages)
        except Exception:  # noqa: BLE001 - it never should; if it does, one message must not stop all that follow
            half = len(messages.values) // 2
            if not half:
                yield messages, None
                return
            yield from self._decoded(shard, _part(messages, slice(None, half)))
            yield from self._decoded(shard, _part(messages, slice(half, None)))

    def _keep_letters(self, tracked: TrackedPartition, messages: Messages, arrived: RecordBatch) -> None:
        if self._dead_letters is None or not arrived.pointers:
            return
        values = messages.values if self._with_payload else None
        # More than the queue takes would be dropped anyway, and counted there.
        most = max(0, 2 * MOST_WAITING - len(self._letters))
        self._letters.extend(islice(letters(tracked.partition, arrived.pointers, messages.offsets, values), most))

    def acknowledge(self) -> None:
        """What was delivered is committed: its letters may go."""
        if self._dead_letters is not None:
            for letter in self._letters:
                self._dead_letters.put(letter)
        self._letters.clear()

    def roll_back(self) -> None:
        """What was delivered comes again, and its letters with it."""
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


def _newest(arrived: RecordBatch, now: float) -> float | None:
    """Return the newest event time, as windows might take it, of all records; None when there is none.

    Too late is safe, it only makes a rewind longer; too early would leave records out of it.
    """
    newest: float | None = None
    for records in arrived.models.values():
        at = records.records.at
        if len(at):
            latest = float(np.where(np.isnan(at), now, np.minimum(at, now + _FUTURE_SECONDS)).max())
            newest = latest if newest is None else max(newest, latest)
    return newest
