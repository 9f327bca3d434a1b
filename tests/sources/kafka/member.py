"""A group member for tests: the source, and a minimal ingestion loop."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import ModelFormat
from monitor.sources.base import Delivery, ShardStatus
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.kafka_source import KafkaSource

EPOCH = 1_760_000_000
LIMIT_SECONDS = 60.0


def decoder() -> RecordDecoder:
    """The real decoder, for one model of three classes."""
    return RecordDecoder([ModelFormat("density", classes=("a", "b", "c"))], hash_key=b"k" * 16)


def payload(number: int) -> bytes:
    """Return a valid record, identified by its event time."""
    return json.dumps({"probs": [0.5, 0.25, 0.25], "time": EPOCH + number}).encode()


def payloads(numbers: Iterable[int]) -> list[bytes]:
    """Return valid records."""
    return [payload(number) for number in numbers]


class Disk:
    """The stored records and checkpoints of each shard."""

    def __init__(self) -> None:
        self.positions: dict[bytes, bytes] = {}
        self.rows: dict[str, list[int]] = {}
        self.evidence: dict[str, list[int]] = {}
        """By shard, the records that are new to the group; they stay when a shard is reset."""

    def commit(self, deliveries: list[Delivery]) -> None:
        """Commit deliveries."""
        for one in deliveries:
            if one.reset:
                self.rows[one.shard] = []
            rows = self.rows.setdefault(one.shard, []) if one.shard else []
            for records in one.batch.models.values():
                rows.extend(int(at) - EPOCH for at in records.at)
                if not one.rebuilt:
                    self.evidence.setdefault(one.shard, []).extend(int(at) - EPOCH for at in records.at)
            for key, value in one.checkpoints.items():
                assert value is not None
                self.positions[key] = value


class Member:
    """A process with a source. `hold` is the window size in records; None is unlimited."""

    def __init__(
        self, options: KafkaOptions, disk: Disk | None = None, *, hold: int | None = None, **more: Any
    ) -> None:
        self.disk = disk or Disk()
        self.hold = hold
        self.counted: Counter[str] = Counter()
        self.events: list[str] = []
        self.warnings: list[str] = []
        self.owned: frozenset[str] = frozenset()
        self.deliveries: list[Delivery] = []
        self.resets: list[str] = []
        self.source = KafkaSource("outputs", options, more.pop("decoder", None) or decoder(), **more)
        self.source.restore(self.disk.positions)

    def tick(self, now: float | None = None) -> None:
        """Poll once, commit, acknowledge."""
        some = list(self.source.poll(time.time() if now is None else now))
        if some:
            self.take(some)

    def take(self, some: list[Delivery]) -> None:
        """Commit deliveries and acknowledge them."""
        self.disk.commit(some)
        for one in some:
            self.counted.update(one.counted)
            self.events.extend(one.events)
            self.warnings.extend(one.warnings)
            self.resets.extend([one.shard] if one.reset else [])
            self.owned = self.owned if one.owned is None else one.owned
        self.deliveries.extend(some)
        self.source.acknowledge({shard: self._oldest(shard) for shard in self.owned})

    def shards(self) -> ShardStatus:
        """Return the status of its partitions."""
        shards = self.source.status().shards
        assert shards is not None
        return shards

    def _oldest(self, shard: str) -> float:
        rows = self.disk.rows.get(shard, [])
        held = rows if self.hold is None else rows[len(rows) - min(self.hold, len(rows)) :]
        return float(EPOCH + min(held)) if held else float("inf")

    def until(self, what: Callable[[], bool], expected: str) -> None:
        """Poll until a condition holds."""
        patience = time.monotonic() + LIMIT_SECONDS
        while not what():
            assert time.monotonic() < patience, (
                f"expected {expected}; rows { ({k: len(v) for k, v in self.disk.rows.items()}) }, {self.counted}, "
                f"{self.warnings}, {self.source.status().waits_for}"
            )
            self.tick()
            # A poll of a source without a connection returns at once.
            time.sleep(0.005)

    def until_rows(self, shard: str, rows: Iterable[int]) -> None:
        """Poll until a shard has exactly these records, in this order."""
        wanted = list(rows)
        self.until(lambda: len(self.disk.rows.get(shard, [])) >= len(wanted), f"{len(wanted)} rows of {shard}")
        assert self.disk.rows[shard] == wanted

    def kill(self) -> None:
        """Crash without committing offsets. Unlike a killed process, the group notices at once."""
        consumer = self.source._connection.consumer  # noqa: SLF001
        if consumer is not None:
            vars(consumer).update(commit=lambda *_: None, commit_now=lambda *_: None)
        self.source.close()
