"""States, alerts, times and numbers in words, for readers who do not know cpcmon."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType
from monitor.core.baselines.comparison import Baseline, BaselineKind, ClassChange, Verdict
from monitor.core.baselines.output_drift import Measure
from monitor.core.change import FEWEST_BLOCKS, ChangeStatus, Direction
from monitor.core.estimate import AUDITED, Estimate, Interval, WindowState
from monitor.core.input_health import FoundProblem, InputProblem
from monitor.core.performance import Performance
from monitor.core.report import InputFacts
from monitor.errors import Problem

STATES = {
    WindowState.OK: "The estimators have no answer",
    WindowState.WARMING: "Collecting its first records",
    WindowState.TOO_FEW_RECORDS: "Too few recent records",
    WindowState.CATCHING_UP: "Catching up with older records",
    WindowState.STALE: "No new records for too long",
    WindowState.NO_REFERENCE: "The model has no reference",
    WindowState.VERSION_MISMATCH: "Most records come from another model version than the reference",
    WindowState.DEGRADED_INPUT: "Too many records are rejected or look wrong",
    WindowState.ERROR: "The evaluation failed; see the log",
}
PHASES = {
    AlertPhase.OK: "quiet",
    AlertPhase.PENDING: "pending",
    AlertPhase.FIRING: "firing",
    AlertPhase.RECOVERING: "firing, recovering",
}
VERDICTS = {
    Verdict.FELL: "The estimate fell",
    Verdict.DRIFTED: "The estimate holds, but the outputs drifted: trust it less",
    Verdict.HOLDS: "The estimate holds, and so do the outputs",
}
_LIKE_ITS_FIRST = "Like its first records, which nobody has confirmed"
MEASURES = {Measure.CLASS_MIX: "Predicted classes", Measure.CONFIDENCE: "Confidence"}
_AGAINST = {
    BaselineKind.REFERENCE: "the reference",
    BaselineKind.LABELLED: "the labelled records of this segment in the reference",
    BaselineKind.OWN: "its own first records",
}
HELD_EVIDENCE = (
    "Held: new records do not count now, in maintenance, or because they are not what the reference is about."
)
_NOUNS = {Direction.DOWN: "drop", Direction.UP: "rise"}
_VERBS = {Direction.DOWN: "dropped", Direction.UP: "risen"}
_LONG_PERIOD = 2 * 86400.0
"""In seconds. Of a longer one, times of day say little."""
_LARGE_TOLERANCE = 0.05
"""Above it, a page says what cannot be detected."""
_KINDS = {
    AlertType.CHANGE: "evidence of a change of the accuracy",
    AlertType.DISAGREEMENT: "disagreement of the estimators",
    AlertType.OUTPUT_DRIFT: "the model answers differently than it did; do not rely on the estimate alone",
    AlertType.BASELINE_GAP: "far below the reference, and nobody has confirmed its own baseline",
    AlertType.SILENT: "no new records",
    AlertType.DEGRADED_INPUT: "rejected or suspicious records",
}


def alert_words(
    alert: AlertStatus,
    estimate: Estimate | Performance | None,
    now: float,
    field: Sequence[Interval] = (),
    changes: Sequence[ChangeStatus] = (),
) -> str:
    """Describe an alert that is not quiet; `field` are the field intervals of the window.

    With what detectors say, it says where a change began.
    """
    began = _began(next((one for one in changes if one.direction is alert.direction), None), now)
    condition = _condition(alert, estimate, field) + (f"; {began}" if began else "")
    return f"{alert.alert} ({alert.severity}): {condition}; {phase_words(alert, now)}"


def phase(alert: AlertStatus) -> str:
    """Return the phase of an alert."""
    return f"{PHASES[alert.phase]}; cannot be evaluated now and stays" if alert.held else PHASES[alert.phase]


def phase_words(alert: AlertStatus, now: float) -> str:
    """Describe the phase of an alert that is not quiet, and since when it holds."""
    text = f"{'pending' if alert.phase is AlertPhase.PENDING else 'firing'} since {moment(alert.since, now)}"
    if alert.held:
        return f"{text}; cannot be evaluated now and stays"
    return f"{text}; resolves if this lasts" if alert.phase is AlertPhase.RECOVERING else text


def _condition(alert: AlertStatus, estimate: Estimate | Performance | None, field: Sequence[Interval]) -> str:
    """Describe the compared value and the threshold; name the end of the interval where that was compared, and the baseline."""
    by_labels = alert.estimator == AUDITED
    how = "audited" if by_labels else "estimated"
    compared = f"{how} {alert.compared}" if alert.kind is AlertType.ACCURACY else _KINDS[alert.kind]
    if alert.direction is not None:
        compared = f"evidence of a {_NOUNS[alert.direction]} of the accuracy"
    if alert.threshold is None or alert.value is None:
        return f"{compared}{_against(alert)}"
    if alert.kind is AlertType.CHANGE:
        return f"{compared}: {power(alert.value)}, budget {power(alert.threshold)}"
    if alert.kind is AlertType.OUTPUT_DRIFT:
        return (
            f"{compared}: {distance(alert.value)} from its baseline, limit {distance(alert.threshold)}{_against(alert)}"
        )
    if alert.kind is AlertType.BASELINE_GAP:
        numbers = f"estimated accuracy {per_cent(alert.value)}, limit {per_cent(alert.threshold)}"
        return f"{compared}: {numbers}{_against(alert)}"
    side = "under" if alert.value < alert.threshold else "over" if alert.value > alert.threshold else "at"
    end = ""
    if alert.kind is AlertType.ACCURACY and estimate is not None and estimate.interval is not None:
        named = [
            (estimate.interval, ""),
            *((one, "field interval of the ") for one in field[-1:] if alert.estimator and not by_labels),
        ]
        ends = {
            value: f"{name} end of the {of}"
            for interval, of in reversed(named)
            for value, name in zip(interval, ("lower", "upper"), strict=True)
        }
        # The interval of a change since a baseline that is uncertain too is wider than that of the estimate.
        uncertain = not by_labels and alert.baseline in {BaselineKind.OWN, BaselineKind.LABELLED}
        if alert.value in ends:
            end = ends[alert.value]
        elif uncertain and _differs(alert.value, estimate):
            end, compared = "upper end of the ", f"{compared} with what is unknown of its baseline"
    numbers = f"{per_cent(alert.value)}, is {side} the threshold of {per_cent(alert.threshold)}"
    return f"{end}{compared}, {numbers}{_against(alert)}"


def _differs(value: float, estimate: Estimate | Performance) -> bool:
    return isinstance(estimate, Estimate) and value != estimate.accuracy


def _against(alert: AlertStatus) -> str:
    """Return the baseline that an alert compares with, in parentheses."""
    return f" ({text})" if (text := against(alert)) else ""


def against(alert: AlertStatus) -> str:
    """Return the baseline that an alert compares with; nothing if it compares with none."""
    if alert.baseline is None:
        return ""
    if alert.kind is AlertType.BASELINE_GAP:
        return "compared with the reference, while its own baseline is unverified"
    return f"compared with {_AGAINST[BaselineKind(alert.baseline)]}"


def compared_value(alert: AlertStatus, value: float | None) -> str | None:
    """Format a value or threshold of an alert: evidence, a distance of outputs, or a ratio."""
    if value is None:
        return None
    if alert.kind is AlertType.CHANGE:
        return power(value)
    return distance(value) if alert.kind is AlertType.OUTPUT_DRIFT else per_cent(value)


def distance(value: float) -> str:
    """Format a distance of outputs: 0.14."""
    return f"{value:.2f}"


def power(exponent: float) -> str:
    """Format a power of ten: 10^7.4."""
    # Without -0.0.
    return f"10^{round(exponent, 1) + 0.0:.1f}"


def fired_words(alert: AlertStatus, change: ChangeStatus | None, now: float) -> str:
    """Say what a firing alert of type change found."""
    direction = alert.direction or Direction.DOWN
    budget = "its budget" if alert.threshold is None else f"the budget {power(alert.threshold)}"
    passed = f"passed {budget} at {time_of_day(alert.since, now)}"
    if alert.value is None or alert.threshold is None:
        found = f"the evidence {passed}"
    elif alert.value >= alert.threshold:
        found = f"evidence {power(alert.value)} {passed}"
    else:
        found = f"the evidence {passed} and is {power(alert.value)} now"
    began = _began(change, now)
    return f"The accuracy has {_VERBS[direction]}: {found}{f'; it {began}' if began else ''}."


def change_words(change: ChangeStatus, now: float, *, alone: bool = True) -> str:
    """Say what a detector found in a window where its alert does not fire; `alone` if it is the only one there."""
    if change.evidence is None:
        if change.tolerance is None:
            if change.blocks >= FEWEST_BLOCKS:
                return "Collecting the baseline: it has enough evaluations, but not enough records in full windows."
            return f"Collecting the baseline: {change.blocks} of {FEWEST_BLOCKS} evaluations with records."
        return "No evidence of a change: no records yet."
    found = f"{power(change.evidence)} of {power(change.threshold)}"
    if change.evidence < change.threshold / 2.0:
        return f"No evidence of a {'change' if alone else _NOUNS[change.direction]}: {found}."
    began = _began(change, now)
    return f"Some evidence of a {_NOUNS[change.direction]}: {found}{f'; if it is one, it {began}' if began else ''}."


def tolerance_words(change: ChangeStatus, baseline: Baseline | None) -> str:
    """Say which changes a detector looks for, or that large ones escape it; nothing while that is unknown."""
    if change.tolerance is None:
        return ""
    noun = _NOUNS[change.direction]
    if change.tolerance <= _LARGE_TOLERANCE:
        return f"Looks for {noun}s of more than {points(change.tolerance)}."
    own = baseline is not None and baseline.kind is BaselineKind.OWN
    return (
        f"{noun.capitalize()}s of up to {points(change.tolerance)} cannot be detected here:"
        f" {'its own baseline' if own else 'the reference'} leaves that much unknown, or the alert tolerates it."
    )


def _began(change: ChangeStatus | None, now: float) -> str:
    """Say when a change began; nothing if that is unknown."""
    if change is None or change.began_at is None or change.records_since is None:
        return ""
    return f"began about {time_of_day(change.began_at, now)}, {plural(change.records_since, 'record')} ago"


def verdict_words(verdict: Verdict, baseline: Baseline | None) -> str:
    """Say what the comparison of a window with its baseline found; one that nobody confirmed may be bad itself."""
    unconfirmed = baseline is not None and not baseline.verified
    return _LIKE_ITS_FIRST if unconfirmed and verdict is Verdict.HOLDS else VERDICTS[verdict]


def baseline_words(baseline: Baseline) -> str:
    """Say what a window is compared with."""
    records = plural(baseline.records, "record")
    if baseline.kind is BaselineKind.OWN:
        if baseline.accuracy is None:
            needed = f" of {baseline.needed:,}" if baseline.records < baseline.needed else ""
            return f"No labelled baseline: collecting its own, {baseline.records:,}{needed} records, in full windows"
        period = ""
        if baseline.first_at is not None and baseline.last_at is not None:
            period = f", from {clock(baseline.first_at, seconds=False)} to {clock(baseline.last_at, seconds=False)}"
        found = f"its own first {records}{period}, estimated accuracy"
        return f"No labelled baseline: compared with {found} {per_cent(baseline.accuracy)}"
    whose = "of this segment in the reference" if baseline.kind is BaselineKind.LABELLED else "of the reference"
    accuracy = "" if baseline.accuracy is None else f", accuracy {per_cent(baseline.accuracy)}"
    return f"Compared with the {baseline.records:,} labelled records {whose}{accuracy}"


def class_change(name: str, change: ClassChange) -> str:
    """Describe the class that changed most."""
    return f"{name}: {per_cent(change.before)} of the answers then, {per_cent(change.now)} now"


def brief_baseline(baseline: Baseline) -> str:
    """Return the baseline for a table: `own baseline 58.3%, unverified`."""
    if baseline.accuracy is None:
        return (
            f"collecting its own baseline: {baseline.records:,} of {max(baseline.records, baseline.needed):,} records,"
            " in full windows"
        )
    if baseline.kind is BaselineKind.REFERENCE:
        return f"reference {per_cent(baseline.accuracy)}"
    unverified = "" if baseline.verified else ", unverified"
    return f"{baseline.kind} baseline {per_cent(baseline.accuracy)} of {baseline.records:,}{unverified}"


def per_cent(ratio: float) -> str:
    """Format a ratio: 87.1%."""
    return f"{100.0 * ratio:.1f}%"


def between(interval: Interval) -> str:
    """Format an interval: 84.6% to 89.2%."""
    return f"{per_cent(interval.lower)} to {per_cent(interval.upper)}"


def points(ratio: float) -> str:
    """Format the size of a difference of two ratios, in percentage points."""
    text = f"{abs(100.0 * ratio):.1f}"
    return f"{text} point{'' if text == '1.0' else 's'}"


def thousands(count: int) -> str:
    """Format a count: 12,345."""
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: 1 window, 12,345 windows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def byte_size(count: int) -> str:
    """Format a number of bytes: 1.2 MB."""
    size, units = float(count), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1000.0 and unit != "TB":
        size, unit = size / 1000.0, next(units)
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def clock(at: float, *, seconds: bool = True) -> str:
    """Format a time in UTC. A record may carry any time, also an impossible one."""
    return _formatted(at, "%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC") or "an impossible time"


def moment(at: float, now: float) -> str:
    """Format a time in UTC, and how long ago it was."""
    shown = _formatted(at, "%Y-%m-%d %H:%M UTC")
    return "an impossible time" if shown is None else f"{shown} ({ago(now - at)})"


def time_of_day(at: float, now: float) -> str:
    """Format a time in UTC, with its date unless that is today."""
    today = _formatted(at, "%Y-%m-%d") == _formatted(now, "%Y-%m-%d")
    return (today and _formatted(at, "%H:%M UTC")) or clock(at, seconds=False)


def period(began: float, ended: float, now: float) -> str:
    """Format a time in UTC by its days, `12 Oct to 8 Nov`; with times of day if it is shorter than two days."""
    days = [_formatted(at, "%d %b %Y") for at in (began, ended, now)]
    if None in days:
        return f"{clock(began, seconds=False)} to {clock(ended, seconds=False)}"
    (day, month, year), (last_day, last_month, last_year), (_, _, this_year) = (str(one).split() for one in days)
    first, last = f"{int(day)} {month}", f"{int(last_day)} {last_month}"
    if not year == last_year == this_year:
        first, last = f"{first} {year}", f"{last} {last_year}"
    if ended - began < _LONG_PERIOD:
        begin, end = _formatted(began, "%H:%M"), _formatted(ended, "%H:%M UTC")
        return f"{first}, {begin} to {end}" if first == last else f"{first} {begin} to {last} {end}"
    return f"{int(day) if (month, year) == (last_month, last_year) else first} to {last}"


def _formatted(at: float, form: str) -> str | None:
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return None


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")


def unbroken(text: str) -> Markup:
    """Return a text in which no line breaks within a time."""
    return Markup(_MOMENT.sub(r'<span class="time">\g<0></span>', str(escape(text))))  # noqa: S704  escaped before


def ago(seconds: float) -> str:
    """Format how long ago something was."""
    if not math.isfinite(seconds):
        return "at an impossible time"
    if seconds < 60.0:
        return "in the future" if seconds < -60.0 else "just now"
    return f"{duration(seconds)} ago"


def lasting(seconds: float) -> str:
    """Format a duration up to now: for 2 hours."""
    if not math.isfinite(seconds) or seconds < -60.0:
        return "since an unknown time"
    return f"for {duration(seconds)}"


def duration(seconds: float) -> str:
    """Format a duration in the largest unit of which there are two."""
    if seconds < 60.0:
        return "less than a minute"
    for unit, length in (("day", 86400.0), ("hour", 3600.0)):
        if seconds >= 2.0 * length:
            return plural(int(seconds // length), unit)
    return plural(int(seconds // 60.0), "minute")


def oddities(records: InputFacts) -> list[str]:
    """Describe what makes an estimate less reliable than it looks."""
    found = list(records.hints)
    if records.degraded:
        found.append("Too many records are rejected or look wrong: the rest may not be representative.")
    if records.one_hot:
        found.append(
            "Nearly all records give one class a probability of 1: the sender may send the answer, not the probabilities."
        )
    if records.constant:
        found.append("All records are equal: the model may be stuck.")
    return found


_CHECK_TIMES = "check time_zone and time_unit of the source, and the sender's clock"
_CHECK_CLASSES = "are the classes of the records in the order of the reference"
_PROBLEMS = {
    InputProblem.SEGMENT_NEVER_SEEN: (
        Problem("segments", "records with {fields}", "none among the latest"),
        "no such segment exists, and no alert on one can fire; compare a record with segment_by and fields.segments",
    ),
    InputProblem.SEGMENT_MISSING: (
        Problem("segments", "{fields} in every record", "{share} without"),
        "these records are in no such segment; let the sender fill the field",
    ),
    InputProblem.GROUP_MISSING: (
        Problem("groups", "the field in group_by of the change alert in every record", "{share} without"),
        "each counts as evidence, which may raise false alarms; compare a record with group_by and fields.segments",
    ),
    InputProblem.ALERT_MATCHES_NOTHING: (
        Problem("alerts", "a segment for each alert", "none for {names}"),
        "such an alert cannot fire; compare its segments with those that exist",
    ),
    InputProblem.CLASS_MIX: (
        Problem(
            "predicted classes",
            "about the shares of the reference",
            "{names} {now} instead of {before}, a Jensen-Shannon distance of {value:.2f}{reordered}",
        ),
        f"{_CHECK_CLASSES}, and are the patients like those of the reference?",
    ),
    InputProblem.TIME_AHEAD: (
        Problem("times", "times up to now", "{share} ahead of the clock"),
        f"they count as of their arrival; {_CHECK_TIMES}",
    ),
    InputProblem.TIME_BEHIND: (
        Problem("times", "times of the last day", "{share} older on arrival"),
        f"unless old records are sent on purpose, {_CHECK_TIMES}",
    ),
    InputProblem.ARGMAX_MISMATCH: (
        Problem("decisions", "the class that the probabilities decide", "another one in {share}"),
        f"{_CHECK_CLASSES}, and does the device decide as the reference says?",
    ),
    InputProblem.DUPLICATES: (
        Problem("ids", "a new id for each record", "an id that was counted before in {share}"),
        "they are dropped; are records sent again, or does the field hold something else than an id of the record?",
    ),
    InputProblem.LATE: (
        Problem("times", "records newer than the window", "{share} older than all of it"),
        "they are dropped; is an archive sent again, or did earlier records have a wrong time?",
    ),
    InputProblem.OTHER_VERSION: (
        Problem("versions", "the version of the reference", "another one in {share}"),
        "they are dropped; give the new version a reference, or correct fields.version of the source",
    ),
}
"""What was expected and found, and what to do."""


def problem_words(one: FoundProblem) -> str:
    """Describe a problem with the input of a model: where, what was expected and found, what to do."""
    problem, action = _PROBLEMS[one.problem]
    now, before = one.class_shares or (0.0, 0.0)
    found = str(problem).format(
        fields=" or ".join(names.replace(",", " and ") for names in one.names),
        names=", ".join(one.names),
        share=f"{per_cent(one.value or 0.0)} of the latest records",
        value=one.value,
        now=per_cent(now),
        before=per_cent(before),
        reordered="; sorted, the shares are those of the reference" if one.reordered else "",
    )
    return f"{found}; {action}"


def place(name: str) -> str:
    """Return the name of a segment as pages show it: `site=A,scanner=1` is `site A, scanner 1`."""
    return "all records" if name == "all" else name.replace("=", " ").replace(",", ", ")
