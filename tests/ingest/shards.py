"""A partitioned log read by processes with changing ownership, without a broker."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from monitor.config.config import LabelOptions, ModelOptions
from monitor.core.change import Detector
from monitor.core.segments import ALL, Segment, Segmentation
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import Decoder, Format, TextPiece
from monitor.records.record_schema import RecordFields
from monitor.sources.base import NOTHING_HELD, Delivery, SourceStatus
from monitor.state.store import State
from tests.ingest.lines import NOW, small_reference

Log = dict[str, list[bytes]]
"""Lines by partition."""


class PartitionedLines:
    """A source with shards. A partition without a checkpoint is read from the start, as after a rewind."""

    sharded: ClassVar[bool] = True

    def __init__(self, log: Log, decoder: Decoder, name: str) -> None:
        self.name = name
        self.owned: set[str] = set()
        """Set by the test; part of the next delivery."""
        self.resets: set[str] = set()
        self.read_to: dict[str, int] = {}
        """By partition, up to where another process has read it."""
        self.oldest: Mapping[str, float] = {}
        self._log, self._decoder = log, decoder
        self._committed: dict[str, int] = {}
        self._delivered: dict[str, int] = {}

    def restore(self, positions: Mapping[bytes, bytes]) -> None:
        """Load the checkpoints."""
        self._committed = {key.decode(): int(value) for key, value in positions.items()}
        self._delivered = dict(self._committed)

    def poll(self, now: float) -> Iterator[Delivery]:
        """Yield unread lines of the owned partitions, a few at a time."""
        del now
        yield Delivery(owned=frozenset(self.owned))
        for shard in sorted(self.owned):
            if shard in self.resets:
                self.resets.remove(shard)
                self._delivered[shard] = 0
                yield Delivery(shard=shard, reset=True, checkpoints={shard.encode(): b"0"})
            lines = self._log[shard]
            while (start := self._delivered.get(shard, 0)) < len(lines):
                read_to = self.read_to.get(shard, 0)
                some = lines[start : min(start + 7, read_to) if start < read_to else start + 7]
                arrived = self._decoder.text(TextPiece(shard, Format.JSONL, b"".join(some), line=start + 1))
                self._delivered[shard] = start + len(some)
                position = {shard.encode(): str(self._delivered[shard]).encode()}
                yield Delivery(shard, arrived, position, shard=shard, rebuilt=start < read_to)

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Accept what was delivered."""
        self._committed, self.oldest = dict(self._delivered), oldest

    def roll_back(self) -> None:
        """Deliver it again."""
        self._delivered = dict(self._committed)

    def status(self) -> SourceStatus:
        """Ready, without lag."""
        return SourceStatus(self.name, "shards")

    def next_poll_seconds(self) -> float:
        """Never wait."""
        return 0.0

    def close(self) -> None:
        """Do nothing."""


class Replica:
    """A process with its own state that owns some partitions of a log."""

    def __init__(
        self,
        folder: Path,
        log: Log,
        *,
        bounds: Bounds | None = None,
        split_by: tuple[tuple[str, ...], ...] = (),
        most_segments: int = 200,
        source: str = "stream",
        group_by: str | None = None,
        detectors: tuple[Detector, ...] = (),
        labels: LabelOptions | None = None,
    ) -> None:
        model = ModelOptions(
            "density",
            small_reference(),
            bounds or Bounds(records=20),
            Segmentation(split_by, most_segments),
            group_by=group_by,
            detectors=detectors,
            labels=labels,
        )
        self.state = State.open(folder)
        decoder = RecordDecoder([model.format], RecordFields(), hash_key=self.state.key)
        self.source = PartitionedLines(log, decoder, source)
        self.ingestion = Ingestion(self.state, [ModelState(model)], [self.source])
        self.ingestion.start(NOW)

    def own(self, *shards: str) -> None:
        """Own these partitions from now on, and read their unread lines."""
        self.source.owned = set(shards)
        self.tick()

    def tick(self) -> None:
        """Ingest everything available."""
        self.ingestion.tick(NOW, 0.0)

    def kill(self) -> None:
        """Crash."""
        self.state.close()

    def window(self, segment: Segment = ALL) -> list[tuple[float, tuple[float, ...]]]:
        """Return times and vectors of a segment's windows over all shards, sorted."""
        rows: list[tuple[float, tuple[float, ...]]] = []
        for one in self.ingestion.states.of("density"):
            if segment in one.windows:
                window = one.windows[segment]
                rows += zip(window.times.tolist(), map(tuple, window.vectors().tolist()), strict=True)
        return sorted(rows)
