"""For those who write a source: checks that any source must pass, against the contract in `sources/base.py`.

They play the part of the pipeline: poll, commit, acknowledge, roll back, crash, and come back with what was committed.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from monitor.sources.base import Delivery, Source

_QUIET_POLLS = 2
"""After all that was wanted has come, so many polls must bring no record more."""


class _Run:
    """One process that reads, and the disk that outlives it."""

    def __init__(self, source: Source, disk: dict[bytes, bytes], never_told: str, patience_seconds: float) -> None:
        self.source = source
        self.disk = disk
        self._never_told = never_told
        self._patience_seconds = patience_seconds
        self._owned: frozenset[str] = frozenset()
        source.restore(dict(disk))

    def take(self, wanted: int, claim: str) -> list[Delivery]:
        """Poll until so many records have come, and see that no more do."""
        taken: list[Delivery] = []
        deadline = time.monotonic() + self._patience_seconds
        while _records(taken) < wanted and time.monotonic() < deadline:
            taken += self._poll()
            time.sleep(min(0.05, self.source.next_poll_seconds()))
        for _ in range(_QUIET_POLLS):
            taken += self._poll()
        _require(_records(taken) == wanted, f"{claim}: expected {wanted} records, found {_records(taken)}")
        return taken

    def commit(self, taken: Sequence[Delivery]) -> None:
        """Write down where the source stands, and tell it that no window holds anything older."""
        for one in taken:
            for key, value in one.checkpoints.items():
                if value is None:
                    self.disk.pop(key, None)
                else:
                    self.disk[key] = value
        self.source.acknowledge(dict.fromkeys(self._owned, float("inf")))

    def _poll(self) -> list[Delivery]:
        deliveries = list(self.source.poll(time.time()))
        for one in deliveries:
            self._owned = self._owned if one.owned is None else one.owned
            said = " ".join((one.origin, *one.events, *one.warnings, *one.counted))
            _require(self._never_told not in said, "neither a file's name nor a record is told to the log")
            _require(not _records([one]) or one.checkpoints, "records come with the position that makes them read")
            kept = b" ".join(part for pair in one.checkpoints.items() for part in pair if part is not None)
            _require(self._never_told.encode() not in kept, "positions hold no name: they lie on disk for long")
        return deliveries


def check_source(
    make: Callable[[], Source], put: Callable[[int], None], *, never_told: str, patience_seconds: float = 30.0
) -> None:
    """Raise AssertionError unless a source behaves as every source must.

    `make` returns a new source on the same input, as a new process would have it. `put` adds so many good records to that
    input. `never_told` is a text in the name or the ids of the input that must not leave it.
    """
    disk: dict[bytes, bytes] = {}
    put(3)
    source = make()
    with closing(source):
        run = _Run(source, disk, never_told, patience_seconds)
        run.take(3, "what is there is delivered")
        _require(source.ready() is None, "a source that was read is ready")
        source.roll_back()
        again = run.take(3, "what could not be committed is delivered again")
        run.commit(again)
        run.take(0, "what was committed is not delivered again")
        lag = source.lag()
        _require(lag.bytes == 0 and lag.oldest_unread is None, f"nothing is unread when all was read, found {lag}")
        put(2)
        run.take(2, "what is added is delivered")
        # Not committed: as if the process had been killed here.
    source = make()
    with closing(source):
        run = _Run(source, disk, never_told, patience_seconds)
        run.commit(run.take(2, "after a crash it reads on from what was committed: none lost, none twice"))
    source = make()
    with closing(source):
        _Run(source, disk, never_told, patience_seconds).take(0, "after a stop nothing is read again")


def _records(deliveries: Iterable[Delivery]) -> int:
    return sum(one.batch.accepted for one in deliveries)


def _require(holds: object, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
