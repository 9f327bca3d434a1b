"""A Kafka source: a member of a consumer group that reads its assigned partitions.

State is stored per partition: records and checkpoint are committed in one transaction by the ingestion loop. Kafka's own
offset commits serve lag tools, and members that must rebuild windows without our disk. No failure is fatal: without a
broker or permission the source reports it and retries.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import ClassVar

from monitor.sources.base import NOTHING_HELD, Delivery, Lag
from monitor.sources.kafka.client import connect as connect_client
from monitor.sources.kafka.connection import Connect, Explain, KafkaLink, probe
from monitor.sources.kafka.consumer import Consumer
from monitor.sources.kafka.dead_letters import DeadLetters
from monitor.sources.kafka.events import KafkaEvent, Notes
from monitor.sources.kafka.failures import KafkaFailure, OutOfRange, Truncated, UnreadableBatch, sentence_of_letters
from monitor.sources.kafka.group_commits import Reporter
from monitor.sources.kafka.health import HealthCheck, PartitionLag, PartitionLagMeter, Stalled, UnassignedCheck
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.message_reader import DecodesMessages, Reader
from monitor.sources.kafka.partition import Fetched, Partition
from monitor.sources.kafka.partitions import Ownership, Partitions
from monitor.sources.kafka.resume_offset import Doubt

__all__ = ["KafkaOptions", "KafkaSource"]

_POLL_SECONDS = 0.1
_IDLE_SECONDS = 0.1
_PLACING_SECONDS = 1.0


class KafkaSource:
    """Reads topics. See `Source` for the contract; single-threaded, never blocks for long."""

    sharded: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - including test hooks
        self,
        name: str,
        options: KafkaOptions,
        decoder: DecodesMessages,
        *,
        fingerprint: str = "",
        room: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        connect: Connect = connect_client,
        explain: Explain = probe,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.name = name
        self._options = options
        self._room = room
        """The number of partitions that fit in memory; None if unknown."""
        self._monotonic = monotonic
        self._notes = Notes()
        self._ownership = Ownership()
        self._link = KafkaLink(
            options, self._ownership, self._notes, connect=connect, explain=explain, monotonic=monotonic
        )
        self._meter = PartitionLagMeter()
        self._health = HealthCheck(options, self._meter, monotonic)
        self._unassigned = UnassignedCheck(options, self._notes, monotonic)
        if dead_letters is None and options.dead_letter_topic is not None:
            dead_letters = DeadLetters(options)
        self._dead_letters = dead_letters
        self._reader = Reader(decoder, fingerprint, dead_letters, with_payload=options.dead_letter_payload)
        self._partitions = Partitions(options, fingerprint, self._meter, monotonic)
        self._reporter = Reporter(options.commit_seconds, fingerprint, self._notes, monotonic)
        self._undelivered: set[Partition] = set()
        """Partitions with fetched messages that were not delivered."""
        self._say_owned = False
        self._owned_said = False
        """Whether the assignment was delivered and not acknowledged."""
        self._epoch = 0
        self._found_records = False

    # The contract

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Load the committed checkpoints; called once, before the first poll."""
        damaged = self._partitions.stored.restore(checkpoints)
        if damaged:
            self._notes.counted[KafkaEvent.POSITIONS_DAMAGED] += damaged
            self._notes.warnings.append(
                f"{damaged} damaged checkpoints; the stored data of their partitions is deleted and rebuilt"
            )

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield the result of one fetch, a delivery for each partition."""
        epoch = self._epoch
        self._found_records = False
        self._note_dead_letters()
        if self._link.connected():
            self._health.begin()
            self._unassigned.begin()
        for delivery in self._poll(now):
            yield delivery
            if self._epoch != epoch:
                return  # rolled back: later deliveries would build on it
        if (rest := self._notes.take(self.name)) is not None:
            yield rest

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Everything delivered so far is committed: send dead letters, and commit offsets when due."""
        self._owned_said = False
        self._partitions.acknowledge(oldest)
        self._reader.acknowledge()
        self._report()

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement was not committed: deliver it again."""
        self._epoch += 1
        self._say_owned, self._owned_said = self._say_owned or self._owned_said, False
        self._reader.roll_back()
        self._go_back(self._partitions.roll_back())

    def lag(self) -> Lag:
        """Return the lag as of the last poll."""
        return self._meter.lag

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 if more may be available."""
        return 0.0 if self._found_records else _IDLE_SECONDS

    def ready(self) -> str | None:
        """Return None if partitions can be read, else what it waits for."""
        if self._link.trouble is None and not self._health.joined:
            return f"kafka {self._options.address}: waiting to join group {self._options.group}"
        return self._link.waits_for or self._unassigned.waits_for

    def close(self) -> None:
        """Commit offsets, leave the group, and release everything."""
        self._epoch += 1
        if self._link.consumer is not None:
            self._reporter.report_now(self._link.consumer, self._partitions.tracked.values())
        self._link.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    # For metrics and status

    def partition_lags(self) -> Mapping[str, PartitionLag]:
        """Return the lag of each shard, as of the last poll."""
        return self._meter.lags

    def gaps(self) -> Mapping[str, float]:
        """Return the shards whose windows contain records from before a loss, with the newest event time before it."""
        return self._partitions.gaps()

    @property
    def restore_seconds(self) -> float:
        """The total time spent rebuilding windows from the log since the start."""
        return self._partitions.restore_seconds

    @property
    def unassigned(self) -> int | None:
        """The number of partitions assigned to no member of the group; None if unknown."""
        return self._unassigned.count

    @property
    def owned(self) -> frozenset[str]:
        """The assigned shards."""
        return frozenset(one.shard for one in self._ownership.owned)

    # One poll

    def _poll(self, now: float) -> Iterator[Delivery]:
        # A member that was removed from the group must report it even without a connection.
        yield from self._follow_ownership()
        consumer = self._link.consumer
        if consumer is None or self._link.rests:
            return
        self._go_back(set())
        # Commit what was acknowledged last, even if no acknowledgement follows.
        self._report()
        fetched = self._fetched(consumer)
        self._undelivered = set(fetched)
        yield from self._follow_ownership()
        try:
            if self._link.consumer is consumer:
                yield from self._partitions.placed(consumer, now, _PLACING_SECONDS)
                self._partitions.look_at_topics(consumer)
        except KafkaFailure as trouble:
            self._link.in_trouble(trouble)
        for partition, some in fetched.items():
            if partition in self._partitions.tracked and self._link.consumer is consumer:
                yield from self._deliver(consumer, partition, some, now)
        if self._link.consumer is consumer:
            self._measure(consumer, now)

    def _fetched(self, consumer: Consumer) -> Mapping[Partition, Fetched]:
        try:
            fetched = consumer.poll(_POLL_SECONDS, self._options.max_poll_records)
        except OutOfRange as error:
            self._partitions.doubt(consumer, error.partitions, Doubt.OUT_OF_RANGE)
        except Truncated as error:
            self._partitions.doubt(consumer, error.partitions, Doubt.TRUNCATED)
        except UnreadableBatch as error:
            self._partitions.skip(consumer, error, self._notes)
        except KafkaFailure as trouble:
            self._link.in_trouble(trouble)
        else:
            if fetched:
                self._found_records = True
                self._link.is_well()
            return fetched
        return {}

    def _follow_ownership(self) -> Iterator[Delivery]:
        change = self._ownership.take_change()
        if change is None:
            if self._say_owned:
                yield self._ownership_told()
            return
        counted = self._notes.counted
        counted[KafkaEvent.REBALANCES] += 1
        counted[KafkaEvent.PARTITIONS_ASSIGNED] += len(change.assigned)
        counted[KafkaEvent.PARTITIONS_REVOKED] += change.revoked
        counted[KafkaEvent.PARTITIONS_LOST] += change.lost
        owned = self._ownership.owned
        self._notes.events.append(f"group rebalanced: {len(owned)} partitions assigned")
        self._look_at_room(len(owned))
        self._partitions.keep(owned, change.assigned)
        self._reporter.forget()
        yield self._ownership_told()

    def _look_at_room(self, owned: int) -> None:
        """Warn before memory is full. To read fewer than assigned would leave some unread."""
        if self._room is not None and owned > self._room:
            self._notes.counted[KafkaEvent.OVER_ROOM] += 1
            self._notes.warn_once(
                "room",
                f"expected at most {self._room} partitions to fit in limits.window_bytes, found {owned}: memory may exceed"
                " the limit; start more processes in the group, raise the limit, or store fewer records",
            )
        else:
            self._notes.over("room", f"limits.window_bytes suffices for the {owned} assigned partitions")

    def _ownership_told(self) -> Delivery:
        self._say_owned, self._owned_said = False, True
        return self._notes.take(self.name, self.owned) or Delivery(self.name, owned=self.owned)

    def _deliver(self, consumer: Consumer, partition: Partition, fetched: Fetched, now: float) -> Iterator[Delivery]:
        if not self._partitions.found_after_skipping(consumer, partition, self._notes):
            self._undelivered.discard(partition)
            return
        tracked = self._partitions.tracked[partition]
        for delivery, position in self._reader.deliveries(tracked, fetched, now):
            if tracked.next_offset > fetched.offsets[-1]:
                self._undelivered.discard(partition)
            self._partitions.delivered(partition, position)
            yield delivery
        self._undelivered.discard(partition)
        if (newest := max(fetched.times_ms)) > 0:
            self._meter.read(partition, newest / 1000.0, now)

    def _report(self) -> None:
        consumer = self._link.consumer
        if consumer is not None and self._reporter.is_due:
            progress = {one: at for one, at in consumer.progress().items() if one not in self._undelivered}
            self._reporter.report(consumer, self._partitions.tracked.values(), progress)

    def _go_back(self, partitions: set[Partition]) -> None:
        """Fetch again what was rolled back, and what was fetched and not delivered."""
        if self._link.consumer is not None:
            for partition in (partitions | self._undelivered) & self._partitions.tracked.keys():
                self._partitions.seek(self._link.consumer, partition)
        self._undelivered = set()

    def _measure(self, consumer: Consumer, now: float) -> None:
        moving = self._partitions.moving(consumer)
        self._partitions.look_for_restored(moving)
        self._meter.measure(moving, self._partitions.restored_to(), now)
        if self._link.rests:
            return
        if self._health.joined:
            self._unassigned.check(consumer)
        try:
            if self._health.check(consumer, moving, quiet=not self._found_records):
                self._link.is_well()
                self._link.topics_missing(self._health.topics(consumer))
        except KafkaFailure as trouble:
            if isinstance(trouble, Stalled):
                self._notes.counted[KafkaEvent.STALLS] += 1
            self._link.in_trouble(trouble)

    def _note_dead_letters(self) -> None:
        if self._dead_letters is None:
            return
        counted, trouble = self._dead_letters.take_counted()
        self._notes.counted.update(counted)
        if trouble is not None:
            self._notes.warn_once("dead letters", f"dead letters: {sentence_of_letters(trouble, self._options)}")
        elif counted[KafkaEvent.DEAD_LETTERS_SENT]:
            self._notes.over("dead letters", "dead letters: sent again")
