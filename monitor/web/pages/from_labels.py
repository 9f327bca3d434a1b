"""What labels say of a window, for its page and the overview: accuracies, classes, and the track record of the estimates."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from monitor.core.estimate import Interval
from monitor.core.estimators.ensemble import headline_in
from monitor.core.labels.realised import AuditedAccuracy, LabelColumns, RealisedClass
from monitor.core.labels.track_record import FEWEST_LABELS, Block, EstimatorRecord, TrackRecord
from monitor.core.report import Report, SegmentReport
from monitor.web.charts.over_time import NARROW, WIDE, BlockPoint, RealisedPoint, block_by_block
from monitor.web.charts.small_charts import MOST_CLASSES
from monitor.web.pages.status import is_doubted
from monitor.web.pages.wording import between, per_cent, period, plural, points

_MOST_OPEN = 5
"""Estimators whose track record is shown openly, with the headline; that of the others is a click away."""


def audited_words(found: AuditedAccuracy, now: float) -> str:
    """Return what an audited accuracy rests on: `412 labels of 20,600 records, 12 Oct to 8 Nov`."""
    labels = f"{plural(found.labels, 'label')} of {plural(found.records, 'record')}"
    return f"{labels}, {period(found.began_at, found.ended_at, now)}"


def brief_audited(found: AuditedAccuracy, now: float) -> str:
    """Return the audited accuracy for a table, behind its value."""
    return f"{between(Interval(found.lower, found.upper))}, from {audited_words(found, now)}"


def missing_words(found: AuditedAccuracy | None) -> str:
    """Warn of labels of audited records that did not come; nothing if enough came."""
    if found is None or found.is_complete:
        return ""
    return f"Labels of {per_cent(found.came)} of audited records came: those that are missing may differ."


def doubt_words(segment: SegmentReport, now: float) -> str:
    """Say that the labels of the latest judged block disagree with the estimates; nothing unless they do."""
    record = segment.track_record
    if record is None or not is_doubted(segment):
        return ""
    headline = headline_in(record.names)
    block = record.summary(headline).latest
    if block is None or block.truth is None:
        return ""
    truth, when = block.truth, period(block.began_at, block.ended_at, now)
    labels = f"{per_cent(truth.value)} ({per_cent(truth.lower)} to {per_cent(truth.upper)})"
    said = f"the estimates said {per_cent(block.answers[headline][0])}"
    return f"Labels of {when} say {labels}, {said}: do not rely on them."


def labels_of(report: Report, segment: SegmentReport, columns: LabelColumns | None, now: float) -> dict[str, Any]:
    """Return what labels say of a window; `columns` are those of all windows of the report."""
    found = segment.labels
    audited = None if found is None else found.horizon.audited
    return {
        "labels": found,
        "audited": audited,
        "audited_from": "" if audited is None else audited_words(audited, now),
        "audited_period": "" if audited is None else period(audited.began_at, audited.ended_at, now),
        "missing": missing_words(audited),
        "doubt": doubt_words(segment, now),
        "label_columns": columns,
        **_classes(report, () if found is None else found.classes),
        **_track_record(segment.track_record),
    }


def _classes(report: Report, found: Sequence[RealisedClass]) -> dict[str, Any]:
    """Return the classes among labelled cases; of many, those with most cases."""
    names = () if report.reference is None else report.reference.classes
    if len(names) != len(found) or not any(one.cases or one.decided for one in found):
        return {"labelled_classes": [], "labelled_class_count": 0}
    rows = list(zip(names, found, strict=True))
    if len(rows) > MOST_CLASSES:
        rows.sort(key=lambda row: -row[1].cases)
    return {"labelled_classes": rows[:MOST_CLASSES], "labelled_class_count": len(rows)}


class TrackRow(NamedTuple):
    """A block: the headline's estimate, and what labels say if there are enough."""

    block: Block
    estimate: float | None
    interval: Interval | None
    realised: RealisedPoint | None

    @property
    def error(self) -> float | None:
        """Of the estimate."""
        return None if self.estimate is None or self.realised is None else self.estimate - self.realised.value


def realised_point(block: Block) -> RealisedPoint | None:
    """Return what labels say of a block, as charts draw it; None with too few."""
    truth = block.truth
    if truth is None or truth.labels < FEWEST_LABELS:
        return None
    return RealisedPoint(
        block.began_at, block.ended_at, truth.value, truth.lower, truth.upper, truth.labels, truth.audited
    )


def realised_points(record: TrackRecord | None) -> list[RealisedPoint]:
    """Return what labels say of the blocks of a track record."""
    blocks = () if record is None else map(record.__getitem__, range(len(record)))
    return [one for block in blocks if (one := realised_point(block)) is not None]


def _track_record(record: TrackRecord | None) -> dict[str, Any]:
    """Return how far off the estimators have been, and estimates against labels, block by block."""
    if record is None:
        return {"track": None}
    headline = headline_in(record.names)
    summary = record.summary(headline)
    rows = [_row(record[index], headline) for index in range(len(record))]
    drawn = [BlockPoint(one.block.began_at, one.block.ended_at, *one[1:]) for one in rows]
    labelled = sum(one.block.truth is not None for one in rows)
    best = None if summary.best is None else summary.estimators[summary.best]

    def least_error(one: tuple[str, EstimatorRecord]) -> tuple[float, bool]:
        return one[1].mean_absolute_error, one[0] != headline

    best_first = sorted(summary.estimators.items(), key=least_error)
    return {
        "track": summary,
        "track_headline": headline,
        "track_rows": rows[::-1],
        "track_biased": any(one.realised is not None and not one.realised.audited for one in rows),
        "track_estimators": [*best_first[:_MOST_OPEN], *(one for one in best_first[_MOST_OPEN:] if one[0] == headline)],
        "track_folded": [one for one in best_first[_MOST_OPEN:] if one[0] != headline],
        "track_best": None if best is None else f"off by {points(best.mean_absolute_error)} on average",
        "track_waits": _waits(len(rows), labelled),
        "track_chart": block_by_block(drawn, WIDE),
        "track_phone_chart": block_by_block(drawn, NARROW),
    }


def _waits(blocks: int, labelled: int) -> str:
    """Say why no block can be judged yet."""
    if not blocks:
        return "No block is complete yet. A block is as many records as the window holds."
    some = f"{labelled:,} of {plural(blocks, 'block')} {'has' if labelled == 1 else 'have'} some"
    return f"No block is judged yet: one needs {FEWEST_LABELS} labels, and nearly all that are to come ({some})."


def _row(block: Block, headline: str) -> TrackRow:
    value, lower, upper = block.answers.get(headline, (None, None, None))
    interval = None if lower is None or upper is None else Interval(lower, upper)
    return TrackRow(block, value, interval, realised_point(block))
