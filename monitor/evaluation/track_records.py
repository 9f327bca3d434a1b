"""The track records of a model: which blocks its windows give, and what labels say of them by now."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from monitor.core.calibration import WindowEstimates
from monitor.core.labels.realised import ENOUGH_CAME, LabelSnapshot, LabelSums
from monitor.core.labels.track_record import Answer, Block, BlockTruth, TrackRecord, blocks_due, truths_of
from monitor.core.report import Snapshot
from monitor.core.scores import Booleans, Floats
from monitor.core.segments import Segment
from monitor.core.window import Bounds

_STORE_SECONDS = 3600.0
"""What labels say is computed from them again after a restart: it is stored this often, before they are deleted."""
_CONFIDENCE = "calibrated_confidence"
_DEVIATIONS = 2.0
"""So many fewer records of a block may be audited than expected, by chance."""


class TrackRecords:
    """The track records of all windows of a model. Not thread-safe."""

    def __init__(self, bounds: Bounds, most_windows: int, of: str = "") -> None:
        """`of` is the fingerprint of the reference."""
        self._bounds, self._most, self._of = bounds, 2 * most_windows, of
        self._records: dict[Segment, TrackRecord] = {}
        self._seen: tuple[int, int] | None = None
        """The labels that were compared last."""
        self._stored_at = 0.0
        self._unstored = self._new_block = False

    def restore(self, content: bytes) -> bool:
        """Take stored records; return whether they are of this reference. Raises ValueError if they are invalid."""
        try:
            of, stored = msgspec.msgpack.decode(content, type=tuple[str, list[tuple[Segment, bytes]]])
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        if of == self._of:
            self._records = {segment: TrackRecord.from_bytes(one) for segment, one in stored}
        return of == self._of

    def changed(self, now: float) -> bytes | None:
        """Return the records to store, if it is time; otherwise None."""
        if not self._new_block and not (self._unstored and now - self._stored_at >= _STORE_SECONDS):
            return None
        self._unstored, self._new_block, self._stored_at = False, False, now
        return msgspec.msgpack.encode((self._of, [(segment, one.to_bytes()) for segment, one in self._records.items()]))

    def update(
        self, snapshot: Snapshot, labels: LabelSnapshot, sums: LabelSums, estimates: WindowEstimates, valid: Booleans
    ) -> tuple[TrackRecord, ...]:
        """Take the blocks that are due, and what labels say of all blocks; return the records of the windows.

        `valid` says which windows have estimates.
        """
        segments = tuple(snapshot.segments)
        # Of a clock that was ahead, and was set back since: later blocks would wait for it.
        latest = labels.now + self._bounds.tolerance_seconds
        held = [self._records.get(segment, TrackRecord()).until(latest) for segment in segments]
        ended = np.array([one.newest_at for one in held])
        due = valid & blocks_due(ended, snapshot.measured.records, snapshot.oldest_at, labels.now, self._bounds)
        if due.any():
            means, places = snapshot.measured.all_means()
            confidence = means[places[_CONFIDENCE]][0]
            for window in np.flatnonzero(due).tolist():
                held[window] = held[window].add(_block(snapshot, estimates, confidence, window))
            self._new_block = True
        if due.any() or labels.version != self._seen:
            held = self._judged(held, labels, sums)
            self._seen = labels.version
        for segment, before in zip(segments, held, strict=True):
            self._unstored |= self._records.get(segment) is not before
            self._records[segment] = before
        self._forget(segments)
        return tuple(held)

    @staticmethod
    def _judged(held: Sequence[TrackRecord], labels: LabelSnapshot, of_labels: LabelSums) -> list[TrackRecord]:
        """Return records with what labels say of their blocks; older ones, whose labels are being deleted, stay as they are.

        Labels often come in the order of the records: those of the first half of a block do not speak for all of it.
        """
        counts = [len(one) for one in held]
        if not sum(counts):
            return list(held)
        windows = np.repeat(np.arange(len(held)), counts)
        began, ended = (np.concatenate([getattr(one, name) for one in held]) for name in ("began_at", "ended_at"))
        share = labels.scope.share
        of_audit = share is not None
        sums = replace(
            of_labels.rows.between(windows, began, ended, of_audit=of_audit),
            records=np.concatenate([one.records for one in held]),
            all_confidence=np.concatenate([one.all_confidence for one in held]),
        )
        expected = (1.0 if share is None else share) * sums.records
        came = sums.labels >= ENOUGH_CAME * (expected - _DEVIATIONS * np.sqrt(expected))
        passed = (of_labels.audited_to if of_audit else of_labels.newest_at)[windows] > ended
        whole = ((began >= labels.since) & (came | passed)).tolist()
        truths: list[BlockTruth | None] = [
            one if kept else None for one, kept in zip(truths_of(sums, audited=of_audit), whole, strict=True)
        ]
        ends = np.cumsum(counts).tolist()
        return [
            one.judged(truths[end - count : end]) if count else one
            for one, count, end in zip(held, counts, ends, strict=True)
        ]

    def _forget(self, segments: Sequence[Segment]) -> None:
        """Forget segments without a window, if there are many: those with the oldest blocks."""
        gone = sorted(self._records.keys() - set(segments), key=lambda one: self._records[one].newest_at)
        for segment in gone[: max(0, len(self._records) - self._most)]:
            del self._records[segment]


def _block(snapshot: Snapshot, estimates: WindowEstimates, confidence: Floats, window: int) -> Block:
    """Return the records of a window as a block."""
    answers: dict[str, Answer] = {}
    for row, name in enumerate(estimates.names):
        if estimates.why[row, window] == 0:
            lower, upper = float(estimates.lower[row, window]), float(estimates.upper[row, window])
            has = not np.isnan(lower + upper)
            answers[name] = float(estimates.accuracy[row, window]), lower if has else None, upper if has else None
    return Block(
        float(snapshot.oldest_at[window]),
        float(snapshot.newest_at[window]),
        int(snapshot.measured.records[window]),
        float(confidence[window]),
        answers,
    )


def track_key_of(model: str) -> str:
    """Return the key of a model's track records in the state."""
    return f"track:{model}"
