"""A Kafka source: a member of a consumer group that reads its assigned partitions.

State is stored per partition: records and checkpoint are committed in one transaction by the ingestion loop. Kafka's
own offset commits serve lag tools, and members that must rebuild windows without our disk. No failure is fatal: without
a broker or permission the source reports it and retries.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import ClassVar, Protocol

import numpy as np

from monitor.records.messages import Messages
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import Carries
from monitor.sources.base import NOTHING_HELD, Delivery, EventBuffer, ShardStatus, SourceStatus
from monitor.sources.kafka.client import connect as connect_client
from monitor.sources.kafka.connection import Connect, Explain, KafkaConnection, check_brokers
from monitor.sources.kafka.consumer import (
    Consumer,
    KafkaFailure,
    OutOfRange,
    Truncated,
    UnreadableBatch,
    describe_dead_letter_failure,
)
from monitor.sources.kafka.dead_letters import MOST_WAITING, DeadLetters, Letter, letters
from monitor.sources.kafka.health import HealthCheck, PartitionLags, Stalled, UnassignedCheck
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions
from monitor.sources.kafka.partition_checkpoint import (
    Fetched,
    Partition,
    PartitionCheckpoint,
    TrackedPartition,
    encoded,
)
from monitor.sources.kafka.partitions import OffsetCommitter, Ownership, Partitions
from monitor.sources.kafka.resume_offset import OffsetProblem

_POLL_SECONDS, _LABELS_POLL_SECONDS = 0.1, 0.0
"""How long a poll waits for messages. Predictions do not wait for labels, which are late anyway."""
_IDLE_SECONDS = 0.1
_RESUME_SECONDS = 1.0

_FUTURE_SECONDS = 86400.0
"""Later event times are invalid; windows never use a later one."""


class DecodesMessages(Protocol):
    """Decodes messages; see `monitor.records.decoder`."""

    def messages(self, where: str, messages: Messages) -> RecordBatch:
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
        parts = [part for some in _split(messages, tracked.restored_to) for part in self._decoded(shard, some)]
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
                rebuilt=bool(some.offsets) and some.offsets[0] < tracked.restored_to,
            )
            yield delivery, checkpoint
            counted = Counter()

    def _decoded(self, shard: str, messages: Messages) -> Iterator[tuple[Messages, RecordBatch | None]]:
        if not messages.values:
            yield messages, RecordBatch()
            return
        try:
            yield messages, self._decoder.messages(shard, messages)
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


def _split(messages: Messages, offset: int) -> list[Messages]:
    """Return the messages before an offset, which the group has read before, apart from those behind it."""
    cut = bisect_left(messages.offsets, offset)
    if not 0 < cut < len(messages.offsets):
        return [messages]
    return [_part(messages, slice(cut)), _part(messages, slice(cut, None))]


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


class KafkaSource:
    """Reads topics. See `Source` for the contract; single-threaded, never blocks for long."""

    sharded: ClassVar[bool] = KafkaOptions.sharded

    def __init__(  # noqa: PLR0913 - including test hooks
        self,
        name: str,
        options: KafkaOptions,
        decoder: DecodesMessages,
        *,
        fingerprint: str = "",
        room: int | None = None,
        carries: Carries = Carries.PREDICTIONS,
        monotonic: Callable[[], float] = time.monotonic,
        connect: Connect = connect_client,
        explain: Explain = check_brokers,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.name = name
        self._options = options
        self._room = room
        """The number of partitions that fit in memory; None if unknown."""
        self._poll_seconds = _POLL_SECONDS if carries is Carries.PREDICTIONS else _LABELS_POLL_SECONDS
        self._monotonic = monotonic
        self._event_log = EventBuffer()
        self._ownership = Ownership()
        self._connection = KafkaConnection(
            options, self._ownership, self._event_log, connect=connect, explain=explain, monotonic=monotonic
        )
        self._meter = PartitionLags()
        self._health = HealthCheck(options, self._meter, monotonic)
        self._unassigned = UnassignedCheck(options, self._event_log, monotonic)
        if dead_letters is None and options.dead_letter_topic is not None:
            dead_letters = DeadLetters(options)
        self._dead_letters = dead_letters
        self._reader = MessageReader(decoder, fingerprint, dead_letters, with_payload=options.dead_letter_payload)
        self._partitions = Partitions(options, fingerprint, self._meter, monotonic)
        self._committer = OffsetCommitter(options.commit_seconds, fingerprint, self._event_log, monotonic)
        self._undelivered: set[Partition] = set()
        """Partitions with fetched messages that were not delivered."""
        self._report_owned = False
        self._owned_reported = False
        """Whether the assignment was delivered and not acknowledged."""
        self._epoch = 0
        self._found_records = False

    # The contract

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Load the committed checkpoints; called once, before the first poll."""
        damaged = self._partitions.stored.restore(checkpoints)
        if damaged:
            self._event_log.counted[KafkaEvent.POSITIONS_DAMAGED] += damaged
            self._event_log.warn(
                f"{damaged} damaged checkpoints; the stored data of their partitions is deleted and rebuilt"
            )

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield the result of one fetch, a delivery for each partition."""
        epoch = self._epoch
        self._found_records = False
        self._note_dead_letters()
        if self._connection.connected():
            self._health.begin()
            self._unassigned.begin()
        for delivery in self._poll(now):
            yield delivery
            if self._epoch != epoch:
                return  # rolled back: later deliveries would build on it
        if self._event_log.pending:
            yield self._event_log.delivery(self.name)

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Everything delivered so far is committed: send dead letters, and commit offsets when due."""
        self._owned_reported = False
        self._partitions.acknowledge(oldest)
        self._reader.acknowledge()
        self._commit_offsets()

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement was not committed: deliver it again."""
        self._epoch += 1
        self._report_owned, self._owned_reported = self._report_owned or self._owned_reported, False
        self._reader.roll_back()
        self._refetch(self._partitions.roll_back())

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 if more may be available."""
        return 0.0 if self._found_records else _IDLE_SECONDS

    def status(self) -> SourceStatus:
        """Return the status. It is ready if partitions can be read."""
        if self._connection.failure is None and not self._health.joined:
            waits_for: str | None = f"kafka {self._options.address}: waiting to join group {self._options.group}"
        else:
            waits_for = self._connection.waits_for or self._unassigned.waits_for
        shards = ShardStatus(
            self._meter.lags,
            len(self._ownership.owned),
            self._partitions.with_gap,
            self._partitions.restore_seconds,
            self._unassigned.count,
        )
        return SourceStatus(self.name, KafkaOptions.type_name, waits_for, self._meter.lag, shards)

    def close(self) -> None:
        """Commit offsets, leave the group, and release everything."""
        self._epoch += 1
        if self._connection.consumer is not None:
            self._committer.commit_now(self._connection.consumer, self._partitions.tracked.values())
        self._connection.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    # One poll

    def _poll(self, now: float) -> Iterator[Delivery]:
        # A member that was removed from the group must report it even without a connection.
        yield from self._update_ownership()
        consumer = self._connection.consumer
        if consumer is None or self._connection.backing_off:
            return
        self._refetch(set())
        # Commit what was acknowledged last, even if no acknowledgement follows.
        self._commit_offsets()
        fetched = self._fetched(consumer)
        self._undelivered = set(fetched)
        yield from self._update_ownership()
        try:
            if self._connection.consumer is consumer:
                yield from self._partitions.resume_waiting(consumer, now, _RESUME_SECONDS)
                self._partitions.check_topics(consumer)
        except KafkaFailure as failure:
            self._connection.handle_failure(failure)
        for partition, some in fetched.items():
            if partition in self._partitions.tracked and self._connection.consumer is consumer:
                yield from self._deliver(consumer, partition, some, now)
        if self._connection.consumer is consumer:
            self._measure(consumer, now)

    def _fetched(self, consumer: Consumer) -> Mapping[Partition, Fetched]:
        try:
            fetched = consumer.poll(self._poll_seconds, self._options.max_poll_records)
        except OutOfRange as error:
            self._partitions.resolve_again(consumer, error.partitions, OffsetProblem.OUT_OF_RANGE)
        except Truncated as error:
            self._partitions.resolve_again(consumer, error.partitions, OffsetProblem.TRUNCATED)
        except UnreadableBatch as error:
            self._partitions.skip(consumer, error, self._event_log)
        except KafkaFailure as failure:
            self._connection.handle_failure(failure)
        else:
            if fetched:
                self._found_records = True
                self._connection.mark_healthy()
            return fetched
        return {}

    def _update_ownership(self) -> Iterator[Delivery]:
        change = self._ownership.take_change()
        if change is None:
            if self._report_owned:
                yield self._ownership_delivery()
            return
        counted = self._event_log.counted
        counted[KafkaEvent.REBALANCES] += 1
        counted[KafkaEvent.PARTITIONS_ASSIGNED] += len(change.assigned)
        counted[KafkaEvent.PARTITIONS_REVOKED] += change.revoked
        counted[KafkaEvent.PARTITIONS_LOST] += change.lost
        owned = self._ownership.owned
        self._event_log.info(f"group rebalanced: {len(owned)} partitions assigned")
        self._check_room(len(owned))
        self._partitions.update_assignment(owned, change.assigned)
        self._committer.forget()
        yield self._ownership_delivery()

    def _check_room(self, owned: int) -> None:
        """Warn before memory is full. To read fewer than assigned would leave some unread."""
        if self._room is not None and owned > self._room:
            self._event_log.counted[KafkaEvent.OVER_ROOM] += 1
            self._event_log.warn_once(
                "room",
                f"expected at most {self._room} partitions to fit in limits.window_bytes, found {owned}: memory may exceed"
                " the limit; start more processes in the group, raise the limit, or store fewer records",
            )
        else:
            self._event_log.resolved("room", f"limits.window_bytes suffices for the {owned} assigned partitions")

    def _ownership_delivery(self) -> Delivery:
        self._report_owned, self._owned_reported = False, True
        owned = frozenset(one.shard for one in self._ownership.owned)
        return self._event_log.delivery(self.name, owned=owned)

    def _deliver(self, consumer: Consumer, partition: Partition, fetched: Fetched, now: float) -> Iterator[Delivery]:
        if not self._partitions.may_deliver(consumer, partition, self._event_log):
            self._undelivered.discard(partition)
            return
        tracked = self._partitions.tracked[partition]
        for delivery, checkpoint in self._reader.deliveries(tracked, fetched, now):
            if tracked.next_offset > fetched.offsets[-1]:
                self._undelivered.discard(partition)
            self._partitions.delivered(partition, checkpoint)
            yield delivery
        self._undelivered.discard(partition)
        if (newest := max(fetched.times_ms)) > 0:
            self._meter.read(partition, newest / 1000.0, now)

    def _commit_offsets(self) -> None:
        consumer = self._connection.consumer
        if consumer is not None and self._committer.is_due:
            progress = {one: at for one, at in consumer.progress().items() if one not in self._undelivered}
            self._committer.commit(consumer, self._partitions.tracked.values(), progress)

    def _refetch(self, partitions: set[Partition]) -> None:
        """Fetch again what was rolled back, and what was fetched and not delivered."""
        if self._connection.consumer is not None:
            for partition in (partitions | self._undelivered) & self._partitions.tracked.keys():
                self._partitions.seek(self._connection.consumer, partition)
        self._undelivered = set()

    def _measure(self, consumer: Consumer, now: float) -> None:
        moving = self._partitions.moving(consumer)
        self._partitions.detect_restored(moving)
        self._meter.measure(moving, self._partitions.restored_to(), now)
        if self._connection.backing_off:
            return
        if self._health.joined:
            self._unassigned.check(consumer)
        try:
            if self._health.check(consumer, moving, quiet=not self._found_records):
                self._connection.mark_healthy()
                self._connection.topics_missing(self._health.topics(consumer))
        except KafkaFailure as failure:
            if isinstance(failure, Stalled):
                self._event_log.counted[KafkaEvent.STALLS] += 1
            self._connection.handle_failure(failure)

    def _note_dead_letters(self) -> None:
        if self._dead_letters is None:
            return
        counted, failure = self._dead_letters.take_counted()
        self._event_log.counted.update(counted)
        if failure is not None:
            self._event_log.warn_once(
                "dead letters", f"dead letters: {describe_dead_letter_failure(failure, self._options)}"
            )
        elif counted[KafkaEvent.DEAD_LETTERS_SENT]:
            self._event_log.resolved("dead letters", "dead letters: sent again")
