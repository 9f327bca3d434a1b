"""From fetched messages to deliveries: tombstones and repetitions out, the rest decoded as columns."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from monitor.decode.arrived import Arrived
from monitor.decode.messages import Messages
from monitor.sources.base import Delivery
from monitor.sources.kafka_counted import Counted
from monitor.sources.kafka_dead_letters import MOST_WAITING, DeadLetters, Letter, letters
from monitor.sources.kafka_partition import Fetched
from monitor.sources.kafka_position import Position, Tracked, encoded

_FUTURE_SECONDS = 86400.0
"""Event times further ahead are no event times; whatever a window makes of them is not later than this."""


class DecodesMessages(Protocol):
    """What makes records of messages; see `monitor.decode.messages`."""

    def decode(self, where: str, messages: Messages) -> Arrived:
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

    def deliveries(self, tracked: Tracked, fetched: Fetched, now: float) -> Iterator[tuple[Delivery, Position]]:
        """Yield what was fetched of a partition, and where it stands then; mostly as one delivery."""
        counted: Counter[str] = Counter()
        fresh = fetched.from_offset(tracked.next_offset)
        if len(fresh) < len(fetched):
            counted[Counted.MESSAGES_REPEATED] += len(fetched) - len(fresh)
        if not len(fresh):
            return
        counted[Counted.MESSAGES_READ] += len(fresh)
        messages = _messages(fresh)
        if len(messages.values) < len(fresh):
            counted[Counted.TOMBSTONES] += len(fresh) - len(messages.values)
        counted[Counted.BYTES_READ] += sum(map(len, messages.values))
        shard, last = tracked.partition.shard, fresh.offsets[-1]
        pieces = list(self._decoded(shard, messages))
        for place, (some, arrived) in enumerate(pieces, start=1):
            warnings: tuple[str, ...] = ()
            if arrived is None:
                counted[Counted.DECODER_ERRORS] += 1
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
                arrived or Arrived(),
                {tracked.partition.key: encoded(position)},
                counted,
                warnings=warnings,
                shard=shard,
            )
            yield delivery, position
            counted = Counter()

    def _decoded(self, shard: str, messages: Messages) -> Iterator[tuple[Messages, Arrived | None]]:
        if not messages.values:
            yield messages, Arrived()
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

    def _keep_letters(self, tracked: Tracked, messages: Messages, arrived: Arrived) -> None:
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


def _newest(arrived: Arrived, now: float) -> float | None:
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
