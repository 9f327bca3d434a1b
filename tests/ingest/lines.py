"""A source of lines in memory, a small reference, and an oracle of windows."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from monitor.config.config import AuditOptions, IngestOptions, LabelOptions, ModelOptions
from monitor.core.change import Detector
from monitor.core.segments import ALL, Segment, Segmentation
from monitor.core.totals import MeasuredWindows
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import Decoder, Format, TextPiece
from monitor.records.record_schema import Carries, OutputKind, RecordFields
from monitor.reference.reference import Reference
from monitor.sources.base import NOTHING_HELD, Delivery, Lag, SourceStatus
from monitor.state.store import State
from tests.strategies import Singles, synthetic

CLASSES = ("cat", "dog", "owl")
POOL: Singles = synthetic(400, 3, seed=2, sharpness=1.2)[0]
NOW = 1_760_000_000.0


@cache
def small_reference() -> Reference:
    """Return a reference of 60 records."""
    return Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES)


def line(number: int, **fields: object) -> bytes:
    """Return a valid record, identified by its vector."""
    vector = [float(value) for value in POOL[number % len(POOL)]]
    return json.dumps({"probs": vector, **fields}).encode() + b"\n"


class LinesSource:
    """Lines in memory as a source; its checkpoint is the number of delivered lines."""

    sharded: ClassVar[bool] = False

    def __init__(self, lines: list[bytes], decoder: Decoder, *, at_once: int = 7, name: str = "lines") -> None:
        self.name = name
        self.lines = lines
        self._decoder, self._at_once = decoder, at_once
        self._committed = self._delivered = 0

    def restore(self, positions: Mapping[bytes, bytes]) -> None:
        """Load the checkpoint."""
        self._committed = self._delivered = int(positions.get(b"next", b"0"))

    def poll(self, now: float) -> Iterator[Delivery]:
        """Yield all lines, a few at a time."""
        del now
        while self._delivered < len(self.lines):
            some = self.lines[self._delivered : self._delivered + self._at_once]
            piece = TextPiece("lines", Format.JSONL, b"".join(some), line=self._delivered + 1, non_json_lines=None)
            arrived = self._decoder.text(piece)
            self._delivered += len(some)
            yield Delivery("file#1", arrived, {b"next": str(self._delivered).encode()})

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Accept what was delivered."""
        del oldest
        self._committed = self._delivered

    def roll_back(self) -> None:
        """Deliver it again."""
        self._delivered = self._committed

    def status(self) -> SourceStatus:
        """Always ready."""
        return SourceStatus(self.name, "lines", None, Lag(bytes=sum(map(len, self.lines[self._delivered :]))))

    def next_poll_seconds(self) -> float:
        """Never wait."""
        return 0.0

    def close(self) -> None:
        """Do nothing."""


class Process:
    """A process, as far as ingestion goes; `kill` drops everything in memory."""

    def __init__(
        self,
        folder: Path,
        lines: list[bytes],
        *,
        bounds: Bounds | None = None,
        split_by: tuple[tuple[str, ...], ...] = (),
        reference: Reference | None = None,
        fields: RecordFields | None = None,
        options: IngestOptions | None = None,
        at_once: int = 7,
        kind: OutputKind = OutputKind.PROBS,
        most_segments: int = 200,
        forget_seconds: float | None = None,
        group_by: str | None = None,
        detectors: tuple[Detector, ...] = (),
        most_ids: int | None = None,
        labels: LabelOptions | None = None,
        audit: AuditOptions | None = None,
        label_lines: list[bytes] | None = None,
        now: float = NOW,
    ) -> None:
        model = ModelOptions(
            "density",
            reference or small_reference(),
            bounds or Bounds(records=50),
            Segmentation(split_by, most_segments, forget_seconds),
            kind,
            group_by=group_by,
            detectors=detectors,
            most_ids=most_ids or 1_000_000,
            labels=labels,
            audit=audit,
        )
        self.state = State.open(folder)
        decoder = RecordDecoder([model.format], fields or RecordFields(), hash_key=self.state.key)
        self.source = LinesSource(lines, decoder, at_once=at_once)
        self.model = ModelState(model)
        sources = [self.source]
        if label_lines is not None:
            decoder = RecordDecoder([model.format], hash_key=self.state.key, carries=Carries.LABELS)
            sources.append(LinesSource(label_lines, decoder, at_once=at_once, name="labels"))
        self.ingestion = Ingestion(self.state, [self.model], sources, options, label_sources=["labels"])
        self.ingestion.start(now)

    def tick(self, now: float = NOW, monotonic: float = 0.0) -> None:
        """Ingest everything available."""
        self.ingestion.tick(now, monotonic)

    def kill(self) -> None:
        """Crash: closes the files and writes nothing."""
        self.state.close()

    def stop(self, now: float = NOW) -> None:
        """Stop orderly."""
        self.ingestion.stop(now)
        self.state.close()

    def window(self, segment: Segment = ALL) -> list[tuple[float, tuple[float, ...]]]:
        """Return times and vectors of a window, oldest first."""
        window = self.model.windows[segment]
        return [(float(t), tuple(v.tolist())) for t, v in zip(window.times, window.vectors(), strict=True)]

    def counted(self, *name: str) -> int:
        """Return a counter."""
        return self.ingestion.view.counters().stored().get(name, 0)


def exact(totals: MeasuredWindows) -> bytes:
    """Return everything in totals, to be compared to the bit."""
    return totals.totals.tobytes() + totals.predicted.tobytes()


def expected(
    numbers: list[int], at: list[float] | None = None, most: int = 50
) -> list[tuple[float, tuple[float, ...]]]:
    """Return the expected content of a window of the last `most` records, in order of arrival."""
    times = [NOW] * len(numbers) if at is None else at
    ranked = sorted(zip(times, range(len(numbers)), numbers, strict=True))[-most:]
    return [(time, tuple(_vector(number))) for time, _, number in ranked]


def _vector(number: int) -> list[float]:
    row = np.array(POOL[number % len(POOL)], dtype=np.float64)
    return [float(np.float32(value)) for value in row / row.sum()]
