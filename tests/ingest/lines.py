"""What the tests of the pipeline share: a source of lines in memory, a small reference, and a plain oracle of windows."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from monitor.config.config import IngestOptions, ModelOptions
from monitor.core.segments import ALL, Segment, Segmentation
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import StreamDecoder
from monitor.records.layout import OutputKind
from monitor.records.record_batch import Decoder, Format, TextPiece
from monitor.records.record_schema import RecordFields
from monitor.reference.reference import Reference
from monitor.sources.base import NOTHING_HELD, Delivery, Lag
from monitor.state.store import State
from tests.strategies import Singles, synthetic

CLASSES = ("cat", "dog", "owl")
REFERENCE = Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES)
POOL: Singles = synthetic(400, 3, seed=2, sharpness=1.2)[0]
NOW = 1_760_000_000.0


def line(number: int, **fields: object) -> bytes:
    """Return a good record; which one it is, its vector tells."""
    vector = [float(value) for value in POOL[number % len(POOL)]]
    return json.dumps({"probs": vector, **fields}).encode() + b"\n"


class LinesSource:
    """Lines in memory as a source; its position is the number of lines that were delivered."""

    sharded: ClassVar[bool] = False

    def __init__(self, lines: list[bytes], decoder: Decoder, *, at_once: int = 7, name: str = "lines") -> None:
        self.name = name
        self.lines = lines
        self._decoder, self._at_once = decoder, at_once
        self._committed = self._delivered = 0

    def restore(self, positions: Mapping[bytes, bytes]) -> None:
        """Go on where the commits ended."""
        self._committed = self._delivered = int(positions.get(b"next", b"0"))

    def poll(self, now: float) -> Iterator[Delivery]:
        """Yield all lines, some at a time."""
        del now
        while self._delivered < len(self.lines):
            some = self.lines[self._delivered : self._delivered + self._at_once]
            piece = TextPiece("lines", Format.JSONL, b"".join(some), line=self._delivered + 1, unproven=None)
            arrived = self._decoder.text(piece)
            self._delivered += len(some)
            yield Delivery("file#1", arrived, {b"next": str(self._delivered).encode()})

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """All of it is on disk."""
        del oldest
        self._committed = self._delivered

    def roll_back(self) -> None:
        """Deliver it again."""
        self._delivered = self._committed

    def lag(self) -> Lag:
        """Return what is left."""
        return Lag(bytes=sum(map(len, self.lines[self._delivered :])))

    def next_poll_seconds(self) -> float:
        """There is nothing to wait for."""
        return 0.0

    def ready(self) -> str | None:
        """Lines in memory are always there."""
        return None

    def close(self) -> None:
        """Nothing is open."""


class Process:
    """A running cpcmon, as far as ingestion goes; `kill` forgets everything in memory, as a kill does."""

    def __init__(
        self,
        folder: Path,
        lines: list[bytes],
        *,
        bounds: Bounds | None = None,
        split_by: tuple[tuple[str, ...], ...] = (),
        reference: Reference = REFERENCE,
        fields: RecordFields | None = None,
        options: IngestOptions | None = None,
        at_once: int = 7,
        kind: OutputKind = OutputKind.PROBS,
        most_segments: int = 200,
        now: float = NOW,
    ) -> None:
        model = ModelOptions(
            "density", reference, bounds or Bounds(records=50), Segmentation(split_by, most_segments), kind
        )
        self.state = State.open(folder)
        decoder = StreamDecoder([model.format], fields or RecordFields(), hash_key=self.state.key)
        self.source = LinesSource(lines, decoder, at_once=at_once)
        self.model = ModelState(model)
        self.ingestion = Ingestion(self.state, [self.model], [self.source], options)
        self.ingestion.start(now)

    def tick(self, now: float = NOW, monotonic: float = 0.0) -> None:
        """Take in everything there is."""
        self.ingestion.tick(now, monotonic)

    def kill(self) -> None:
        """Die without a word. Closing only lets go of the files: nothing that is in memory is written."""
        self.state.close()

    def stop(self, now: float = NOW) -> None:
        """Stop in an orderly way."""
        self.ingestion.stop(now)
        self.state.close()

    def window(self, segment: Segment = ALL) -> list[tuple[float, tuple[float, ...]]]:
        """Return times and vectors of a window, oldest first."""
        window = self.model.windows[segment]
        return [(float(t), tuple(v.tolist())) for t, v in zip(window.times, window.vectors(), strict=True)]

    def counted(self, *name: str) -> int:
        """Return a counter."""
        return self.ingestion.counters.get(name, 0)


def expected(
    numbers: list[int], at: list[float] | None = None, most: int = 50
) -> list[tuple[float, tuple[float, ...]]]:
    """Return what a window of the last `most` must hold after these records, which came in this order."""
    times = [NOW] * len(numbers) if at is None else at
    ranked = sorted(zip(times, range(len(numbers)), numbers, strict=True))[-most:]
    return [(time, tuple(_vector(number))) for time, _, number in ranked]


def _vector(number: int) -> list[float]:
    row = np.array(POOL[number % len(POOL)], dtype=np.float64)
    return [float(np.float32(value)) for value in row / row.sum()]
