"""The contract checks of sources: poll, commit, acknowledge, roll back, crash and restore; see `sources/base.py`."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from monitor.sources.base import Delivery, Source
from monitor.sources.registry import SOURCE_TYPES

_QUIET_POLLS = 2
"""Polls that must deliver nothing after all records were delivered."""


class _Run:
    """A process that reads the source, and the disk that outlives it."""

    def __init__(self, source: Source, disk: dict[bytes, bytes], private_text: str, patience_seconds: float) -> None:
        self.source = source
        self.disk = disk
        self._private_text = private_text
        self._patience_seconds = patience_seconds
        self._owned: frozenset[str] = frozenset()
        type_name = source.status().type_name
        _require(type_name in SOURCE_TYPES, f"the type must be in the registry, found {type_name}")
        self._events = set(SOURCE_TYPES[type_name].EVENTS)
        source.restore(dict(disk))

    def take(self, wanted: int, claim: str) -> list[Delivery]:
        """Poll until `wanted` records were delivered, and check that no more are."""
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
        """Store the checkpoints and acknowledge."""
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
            messages = " ".join((one.origin, *one.events, *one.warnings, *one.counted))
            _require(self._private_text not in messages, "file names and records must not be logged")
            _require(one.counted.keys() <= self._events, "counted events must be among the events of the type")
            _require(not _records([one]) or one.checkpoints, "records must come with a checkpoint")
            stored = b" ".join(part for pair in one.checkpoints.items() for part in pair if part is not None)
            _require(self._private_text.encode() not in stored, "checkpoints must not contain names")
        return deliveries


def check_source(
    make: Callable[[], Source], put: Callable[[int], None], *, private_text: str, patience_seconds: float = 30.0
) -> None:
    """Raise AssertionError unless a source meets the contract of sources.

    `make` returns a new source on the same input, as a new process would. `put` adds valid records to that input.
    `private_text` is a text in file names or ids of the input that must not be logged or stored.
    """
    disk: dict[bytes, bytes] = {}
    put(3)
    source = make()
    with closing(source):
        run = _Run(source, disk, private_text, patience_seconds)
        run.take(3, "existing records must be delivered")
        _require(source.status().waits_for is None, "a source that was read must be ready")
        source.roll_back()
        again = run.take(3, "records must be delivered again after a rollback")
        run.commit(again)
        run.take(0, "committed records must not be delivered again")
        lag = source.status().lag
        _require(
            lag.bytes == 0 and lag.oldest_unread is None, f"the lag must be zero when everything was read, found {lag}"
        )
        put(2)
        run.take(2, "new records must be delivered")
        # Not committed, as after a crash.
    source = make()
    with closing(source):
        run = _Run(source, disk, private_text, patience_seconds)
        run.commit(run.take(2, "after a crash, reading must continue at the last commit"))
    source = make()
    with closing(source):
        _Run(source, disk, private_text, patience_seconds).take(0, "after a restart, nothing must be read again")


def _records(deliveries: Iterable[Delivery]) -> int:
    return sum(one.batch.accepted for one in deliveries)


def _require(holds: object, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
