"""A watched directory for tests: real files, a manual clock, and a decoder of whole lines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from monitor.errors import Problem
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.rejections import Reason, RejectedFile
from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import System
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource

KEY = b"0123456789abcdef"
END = b"END\n"


@dataclass(frozen=True)
class LineBatch(RecordBatch):
    """A batch with its lines."""

    lines: tuple[bytes, ...] = ()


class LineDecoder:
    """Every line is a record. A whole file must end with END, else it is damaged; a block has two lines."""

    def __init__(self) -> None:
        self.pieces: list[TextPiece] = []
        self.attempts = 0

    def text(self, piece: TextPiece) -> RecordBatch:
        """Return the lines; lines that are too long or have zeros are rejected."""
        self.pieces.append(piece)
        assert piece.data.endswith(b"\n")
        lines = piece.data.split(b"\n")[:-1]
        rejected: Counter[tuple[str, Reason]] = Counter()
        kept = []
        for number, line in enumerate(lines):
            if number == 0 and piece.continues:
                rejected["", Reason.LINE_TOO_LONG] += 1
            elif b"\0" in line:
                rejected["", Reason.NUL_BYTES] += 1
            elif line == b"POISON":
                raise RejectedFile(Reason.NOT_JSONL, Problem(piece.where, "no poison", "some"))
            elif line == b"BUG":
                raise ZeroDivisionError
            elif line:
                kept.append(line)
        return LineBatch(rejected=rejected, rows=len(lines), lines=tuple(kept))

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        """Return the lines after the skipped ones, two at a time."""
        assert where.startswith("file#")
        assert not format_.grows
        self.attempts += 1
        content = file.read()
        if not content.endswith(END):
            raise RejectedFile(Reason.BAD_FILE, Problem(where, "a whole file", "half of one"))
        lines = content.split(b"\n")[:-2]
        for first in range(skip, len(lines), 2):
            some = tuple(lines[first : first + 2])
            yield LineBatch(rows=len(some), lines=some)


class Inbox:
    """A directory that is watched, crashed and watched again."""

    def __init__(self, path: Path, *, system: System | None = None, guard: Any = None, **options: Any) -> None:
        self.path = path
        self.clock = 1000.0
        self.now = 1_800_000_000.0
        self.decoder: Any = LineDecoder()
        self.system = system
        self.guard = guard
        self.options = DirectoryOptions(path, **options)
        self.committed: dict[bytes, bytes] = {}
        self.lines: list[str] = []
        """The committed checkpoints."""
        self.rejected: Counter[Reason] = Counter()
        self.counted: Counter[str] = Counter()
        self.events: list[str] = []
        self.warnings: list[str] = []
        self.deliveries: list[Delivery] = []
        self.source = self._source()

    def _source(self) -> DirectorySource:
        return DirectorySource(
            "inbox",
            self.options,
            self.decoder,
            key=KEY,
            guard=self.guard,
            monotonic=lambda: self.clock,
            system=self.system,
        )

    def write(self, name: str, *lines: str, end: str = "\n") -> Path:
        """Append lines to a file."""
        return self.put(name, "".join(f"{line}{end}" for line in lines).encode())

    def put(self, name: str, data: bytes) -> Path:
        """Append bytes to a file."""
        file = self.path / name
        with file.open("ab") as stream:
            stream.write(data)
        return file

    def poll(self, seconds: float = 2.0) -> list[str]:
        """Advance the clock, poll once, commit, and return the lines."""
        deliveries = self.peek(seconds)
        return self.commit(deliveries)

    def peek(self, seconds: float = 2.0) -> list[Delivery]:
        """Advance the clock and poll, without a commit."""
        self.clock += seconds
        self.now += seconds
        return list(self.source.poll(self.now))

    def commit(self, deliveries: list[Delivery]) -> list[str]:
        """Commit what was delivered."""
        came: list[str] = []
        for delivery in deliveries:
            came += lines_of(delivery)
            for key, value in delivery.checkpoints.items():
                if value is None:
                    self.committed.pop(key, None)
                else:
                    self.committed[key] = value
            self.counted.update(delivery.counted)
            for (_, reason), count in delivery.batch.rejected.items():
                self.rejected[reason] += count
            self.events += delivery.events
            self.warnings += delivery.warnings
        self.deliveries += deliveries
        self.lines += came
        self.source.acknowledge({})
        return came

    def polls(self, times: int, seconds: float = 2.0) -> list[str]:
        """Poll several times."""
        return [line for _ in range(times) for line in self.poll(seconds)]

    def crash(self) -> None:
        """Lose everything uncommitted, and start again."""
        self.source.close()
        self.source = self._source()
        self.source.restore(dict(self.committed))


def lines_of(delivery: Delivery) -> list[str]:
    """Return the lines of a delivery."""
    return [line.decode(errors="replace") for line in getattr(delivery.batch, "lines", ())]
