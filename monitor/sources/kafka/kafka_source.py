"""A Kafka source: a member of a consumer group that reads the partitions it is given.

State is kept per partition: rows and position are committed together, by others, in one transaction. Kafka's own commits
are for lag tools, and for members that have to rebuild windows without our disk. Nothing here is ever fatal: without a
broker, or without permission, the source says so and goes on trying.
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
    """Reads topics. See `Source` for who calls what; all of it on one thread, and none of it waits for long."""

    sharded: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - clocks and doors of tests among them
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
        """For how many partitions there is memory; None when nobody knows."""
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
        """Partitions of which something was fetched that nobody has been given."""
        self._say_owned = False
        self._owned_said = False
        """Whether ownership was told in a delivery that is not acknowledged yet."""
        self._epoch = 0
        self._found_records = False

    # The contract

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Take over the positions that were committed; called once, before the first poll."""
        damaged = self._partitions.stored.restore(checkpoints)
        if damaged:
            self._notes.counted[KafkaEvent.POSITIONS_DAMAGED] += damaged
            self._notes.warnings.append(
                f"{damaged} positions are damaged; what is stored of their partitions is forgotten, and they are rebuilt"
            )

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield what one fetch brings, a delivery for each partition."""
        epoch = self._epoch
        self._found_records = False
        self._note_dead_letters()
        if self._link.connected():
            self._health.begin()
            self._unassigned.begin()
        for delivery in self._poll(now):
            yield delivery
            if self._epoch != epoch:
                return  # rolled back: what follows stood on what was taken back
        if (rest := self._notes.take(self.name)) is not None:
            yield rest

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Everything delivered so far has been committed: letters may go, and the group is told once in a while."""
        self._owned_said = False
        self._partitions.acknowledge(oldest)
        self._reader.acknowledge()
        self._report()

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement could not be committed: deliver it again."""
        self._epoch += 1
        self._say_owned, self._owned_said = self._say_owned or self._owned_said, False
        self._reader.roll_back()
        self._go_back(self._partitions.roll_back())

    def lag(self) -> Lag:
        """Return how far behind the source is, as of the last poll."""
        return self._meter.lag

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 when more may be there already."""
        return 0.0 if self._found_records else _IDLE_SECONDS

    def ready(self) -> str | None:
        """Return None when partitions can be read, else a sentence that says what is waited for."""
        if self._link.trouble is None and not self._health.joined:
            return f"kafka {self._options.address}: waits to be let into group {self._options.group}"
        return self._link.waits_for or self._unassigned.waits_for

    def close(self) -> None:
        """Tell the group how far we are, leave it, and let go of everything."""
        self._epoch += 1
        if self._link.consumer is not None:
            self._reporter.report_now(self._link.consumer, self._partitions.tracked.values())
        self._link.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    # What metrics and estimates ask beside it

    def partition_lags(self) -> Mapping[str, PartitionLag]:
        """Return how far behind each shard is, as of the last poll."""
        return self._meter.lags

    def gaps(self) -> Mapping[str, float]:
        """Return the shards whose windows hold records from before a loss, with the newest event time before it."""
        return self._partitions.gaps()

    @property
    def restore_seconds(self) -> float:
        """How long windows have been rebuilt from the log, all partitions together, since the start."""
        return self._partitions.restore_seconds

    @property
    def unassigned(self) -> int | None:
        """How many partitions of the topics are assigned to no member of the group; None when it is not known."""
        return self._unassigned.count

    @property
    def owned(self) -> frozenset[str]:
        """The shards that are ours."""
        return frozenset(one.shard for one in self._ownership.owned)

    # One poll

    def _poll(self, now: float) -> Iterator[Delivery]:
        # Who was put out of the group, or left it, must say so even when there is no way back for now.
        yield from self._follow_ownership()
        consumer = self._link.consumer
        if consumer is None or self._link.rests:
            return
        self._go_back(set())
        # What was acknowledged last is reported even if nothing follows that would be acknowledged.
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
        self._notes.events.append(f"its group shares partitions anew: {len(owned)} are ours")
        self._look_at_room(len(owned))
        self._partitions.keep(owned, change.assigned)
        self._reporter.forget()
        yield self._ownership_told()

    def _look_at_room(self, owned: int) -> None:
        """Warn before memory is full; to read fewer than the group gave us would leave some to nobody."""
        if self._room is not None and owned > self._room:
            self._notes.counted[KafkaEvent.OVER_ROOM] += 1
            self._notes.warn_once(
                "room",
                f"expected at most {self._room} partitions, for which limits.window_bytes has room, found {owned}: their"
                " windows may come to take more; start more processes in the group, raise the limit, or hold fewer records",
            )
        else:
            self._notes.over("room", f"limits.window_bytes has room for the {owned} partitions that are ours")

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
        """Fetch again what was taken back, and what was fetched and never taken."""
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
            self._notes.over("dead letters", "dead letters: are taken again")
