"""The page of one window of a model: status, labels, history, alerts, performance, estimators, sets, classes, records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType
from monitor.core.baselines.comparison import BaselineKind, Verdict
from monitor.core.calibration import or_none
from monitor.core.change import Direction
from monitor.core.decisions import DecidedBy
from monitor.core.estimate import ADAPTIVE, AUDITED, CONSENSUS, HEADLINE, Estimate, Interval, Why
from monitor.core.estimators.ensemble import MEMBERS, headline_in
from monitor.core.history import Series, Span
from monitor.core.performance import FEWEST_CASES, WORDS, Metric, Performance, Target
from monitor.core.report import Report, SegmentReport
from monitor.evaluation.alert_history import Transition
from monitor.reference.reference import NO_ADAPTIVE, Reference
from monitor.web.charts.over_time import (
    NARROW,
    OTHER_REFERENCE,
    WIDE,
    Mark,
    OverTime,
    Point,
    evidence_over_time,
    over_time,
    replaced,
    step_of,
    without_estimate,
)
from monitor.web.charts.small_charts import MOST_CLASSES, ShareScale, class_shares, drift_row, moved_most, pair_of_bars
from monitor.web.pages.from_labels import labels_of, realised_points
from monitor.web.pages.rendering import render
from monitor.web.pages.status import (
    Urgency,
    Within,
    active_alerts,
    baseline_accuracy,
    compared_of,
    fired_changes,
    fired_in,
    fires_now,
    headline_of,
    is_doubted,
    severity_suffix,
    urgency_key,
    urgency_of,
    within,
)
from monitor.web.pages.wording import (
    HELD_EVIDENCE,
    MEASURES,
    STATES,
    ago,
    change_words,
    class_change,
    clock,
    oddities,
    per_cent,
    place,
    points,
    tolerance_words,
    verdict_words,
)
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_VISIBLE = 50
"""Segments that are listed openly; the others are a click away."""
MOST_ROWS = 60
"""Evaluations in the table of the history."""
MOST_FIRED = 30
"""Alerts in the table of what fired."""
_MOST_OPEN = 4
"""Classes whose performance is shown openly; that of more is a click away."""
SPANS = {Span.RECENT: "latest evaluations", Span.DAYS: "3 days", Span.MONTH: "30 days"}
REASONS = {
    Why.TOO_FEW_RECORDS: "too few records",
    Why.ALL_SETS_EMPTY: "all prediction sets are empty",
    Why.ERROR: "the estimator failed; see the log",
    Why.TOO_FEW_CASES: "too few cases",
}


def model_page(site: Site, query: Mapping[str, str]) -> Response | None:
    """Return the page that the query names; None for an unknown model, segment or span."""
    report = site.reports().get(query.get("name", ""))
    name, span = query.get("segment", "all"), query.get("span", Span.RECENT)
    if report is None or span not in list(Span):
        return None
    windows = report.windows
    if name not in windows.names:
        return None
    segment, report = report.segments[windows.names.index(name)], report.summary()
    now = site.now()
    inside = within(report)
    own, parts = urgency_of(segment), inside.get(segment.name, Within())
    parts = replace(parts, problem=bool(report.input.problems))
    estimate = headline_of(segment)
    reference, compared = _reference_of(site, report), baseline_accuracy(segment, report)
    return render(
        site,
        "model.html",
        title=f"{report.model}, {place(segment.name)}",
        here="/model",
        report=report,
        reference=report.reference,
        segment=segment,
        estimate=estimate,
        headline=headline_in(segment.results),
        old_reference=NO_ADAPTIVE if report.reference is not None and report.reference.headline != HEADLINE else None,
        calibration=None if reference is None else reference.calibration,
        has_reference_page=site.reference(report.model) is not None,
        urgency=parts.urgency(own),
        heading=parts.words(own).lower() + severity_suffix(segment),
        sentence=_sentence(report, segment, now),
        active=[(one, _compared(one, report, segment)) for one in active_alerts(segment)],
        parts=parts.by_urgency(),
        quiet=parts.urgency(own) in {Urgency.FINE, Urgency.INFO, Urgency.UNVERIFIED, Urgency.UNWATCHED},
        drop=None if compared is None or estimate is None else compared - estimate.accuracy,
        choices=_choices(report, inside),
        most_visible=MOST_VISIBLE,
        span=Span(span),
        spans=SPANS,
        state=STATES[segment.state],
        sets={
            name: result.prediction_sets
            for name, result in (segment.results if segment.valid else {}).items()
            if result.prediction_sets is not None
        },
        odd=oddities(report.input),
        **_fired(report, segment, site.alert_rows().get(report.model, ())),
        **labels_of(report, segment, windows.labels, now),
        **_comparison(report, segment),
        **_changes(segment, now),
        **_history(report, segment, site.history(report.model, segment.name, Span(span)), now),
        **_estimators(report, segment),
        **_performance(segment, reference),
        **_class_mix(segment, reference),
        **_classes(report, segment, reference),
    )


def _fired(report: Report, segment: SegmentReport, rows: Sequence[Transition]) -> dict[str, Any]:
    """Return what fired in the window and for how long; of the whole model, in every window."""
    found = [*fires_now(report, rows), *fired_in(report, rows)]
    own = [one for one in found if not segment.segment or one.segment == segment.name]
    return {"fired_alerts": own[:MOST_FIRED], "more_fired": len(own) - MOST_FIRED}


def _sentence(report: Report, segment: SegmentReport, now: float) -> str:
    """Describe the estimate, and compare it with the accuracy of the baseline."""
    estimate = headline_of(segment)
    if estimate is None:
        why = STATES[segment.state]
        if segment.last_valid_at is not None:
            why += f"; last estimate {ago(now - segment.last_valid_at)}"
        return f"{why}. The accuracy is unknown now."
    text = f"About {per_cent(estimate.accuracy)} of the predictions are correct, estimated from the model's confidence"
    baseline = baseline_accuracy(segment, report)
    if baseline is None:
        return f"{text}."
    drop, uncertain = baseline - estimate.accuracy, _has_own(segment) or _is_labelled(segment)
    what = "that of its baseline" if uncertain else "the accuracy on the reference"
    text += f"; {points(drop)} {'under' if drop > 0.0 else 'over'} {what}"
    if uncertain and drop > 0.0 and segment.verdict is not Verdict.FELL:
        return f"{text}, too little to call it a fall."
    if estimate.interval is None or (uncertain and segment.verdict is not Verdict.FELL):
        # The interval of a change since a baseline that is uncertain too is wider, and known to the verdict only.
        return f"{text}."
    by_chance = not uncertain and estimate.interval.lower <= baseline <= estimate.interval.upper
    return f"{text}, which is {'no more' if by_chance else 'more'} than chance explains."


def _has_own(segment: SegmentReport) -> bool:
    """Return whether a window is compared with its own first records."""
    found = segment.baseline
    return found is not None and found.kind is BaselineKind.OWN and found.accuracy is not None


def _is_labelled(segment: SegmentReport) -> bool:
    return segment.baseline is not None and segment.baseline.kind is BaselineKind.LABELLED


def _comparison(report: Report, segment: SegmentReport) -> dict[str, Any]:
    """Return the verdict, the baseline, and the drift of the outputs, drawn on one scale."""
    change, facts = segment.changed_class, report.reference
    most = min(1.0, 1.1 * max((max(one.distance, one.limit) for one in segment.drift), default=1.0))
    return {
        # Names come from records, and people paste the command.
        "confirm": f"cpcmon baseline {quote(report.model)} --segment {quote(segment.name)} --confirm",
        "compared_verdict": None
        if segment.verdict is None or (segment.verdict is Verdict.HOLDS and (_fires(segment) or is_doubted(segment)))
        else verdict_words(segment.verdict, segment.baseline),
        "drifts": [(MEASURES[one.measure], one, drift_row(MEASURES[one.measure], one, most)) for one in segment.drift],
        "changed_class": None
        if change is None or facts is None
        else class_change(facts.classes[change.class_index], change),
    }


def _fires(segment: SegmentReport) -> set[Direction]:
    """Return the directions whose alerts of type change fire."""
    return {one.direction or Direction.DOWN for one in segment.alerts if one.kind is AlertType.CHANGE and one.firing}


def _changes(segment: SegmentReport, now: float) -> dict[str, Any]:
    """Return what the detectors of changes found, and what they look for."""
    fires, alone = _fires(segment), len(segment.changes) == 1
    quiet = [change_words(one, now, alone=alone) for one in segment.changes if one.direction not in fires]
    # While a baseline is collected, both directions say the same.
    return {
        "fired": (fired := fired_changes(segment, now)),
        "found_changes": [
            *dict.fromkeys([*fired, *quiet]),
            *([HELD_EVIDENCE] if any(one.held for one in segment.changes) else []),
        ],
        "looks_for": [text for one in segment.changes if (text := tolerance_words(one, segment.baseline))],
    }


def _began(segment: SegmentReport) -> list[float]:
    """Return when changes began whose alerts fire, or for which there is some evidence."""
    fires = _fires(segment)
    return [
        one.began_at
        for one in segment.changes
        if one.began_at is not None and (one.direction in fires or (one.evidence or 0.0) >= one.threshold / 2.0)
    ]


def _budgets(segment: SegmentReport) -> list[Mark]:
    """Return the evidence at which alerts fire; equal ones share a label."""
    found: dict[float, list[str]] = {}
    for one in segment.changes:
        found.setdefault(one.threshold, []).append(str(one.direction))
    named = len(found) > 1
    return [Mark(f"budget, {names[0]}" if named else "budget", value) for value, names in sorted(found.items())]


def _compared(alert: AlertStatus, report: Report, segment: SegmentReport) -> Estimate | Performance | None:
    """Return the estimate that an alert compares, or an end of whose interval it compares."""
    if alert.metric is None or report.reference is None:
        return compared_of(alert, segment)
    classes = report.reference.classes
    of_class = classes.index(alert.of_class) if alert.of_class in classes else None
    return next((one for one in segment.performance if one.target == Target(alert.metric, of_class)), None)


def _choices(report: Report, inside: Mapping[str, Within]) -> list[tuple[str, Urgency, str, Estimate | None]]:
    """Return all windows of the model: the whole first, then the worst."""

    def worst_first(segment: SegmentReport) -> tuple[object, ...]:
        estimate = headline_of(segment)
        return *urgency_key(segment), 1.0 if estimate is None else estimate.accuracy, segment.name

    whole = [one for one in report.segments if not one.segment]
    parts = sorted((one for one in report.segments if one.segment), key=worst_first)
    choices = []
    for one in (*whole, *parts):
        own, within_it = urgency_of(one), inside.get(one.name, Within())
        choices.append((one.name, within_it.urgency(own), within_it.heading(own), headline_of(one)))
    return choices


_LEVELS = {
    (False, False): "accuracy on the reference",
    (False, True): "baseline: accuracy of its labelled records in the reference",
    (True, False): "baseline: estimated accuracy of its own first records",
}


_LABELS = {
    True: "audited accuracy of a block of records, with its interval",
    False: "what labels say of a block of records, with its interval",
}


def _history(report: Report, segment: SegmentReport, series: Series | None, now: float) -> dict[str, Any]:
    """Return the chart of the estimate over time, its legend and its table."""
    facts = report.reference
    data = OverTime(
        series,
        now,
        segment.baseline.accuracy
        if segment.baseline is not None and segment.baseline.kind is BaselineKind.LABELLED
        else None
        if facts is None
        else facts.accuracy,
        thresholds(segment),
        [Mark(alert.alert, alert.since) for alert in segment.alerts if alert.phase is not AlertPhase.OK],
        "" if facts is None or facts.headline != HEADLINE else facts.fingerprint,
        Mark("baseline", segment.baseline.accuracy)
        if segment.baseline is not None
        and segment.baseline.accuracy is not None
        and segment.baseline.kind is not BaselineKind.REFERENCE
        else None,
        _began(segment),
        _budgets(segment),
    )
    shown = data.points()
    data = replace(
        data, realised=[one for one in realised_points(segment.track_record) if shown and one.end >= shown[0].at]
    )
    changes = replaced(shown)
    stepped = series is not None and series.step_seconds is not None
    has_field = any(point.field is not None for point in shown)
    legend = {
        "estimate": ("estimate and its chance interval", any(point.accuracy is not None for point in shown)),
        "field": ("field interval", has_field),
        "lowest": ("lowest estimate within a point", stepped),
        "reference": (_LEVELS[_has_own(segment), _is_labelled(segment)], data.compared is not None),
        "threshold": ("threshold of an alert", bool(data.thresholds)),
        "realised": (_LABELS[{one.audited for one in data.realised} == {True}], bool(data.realised)),
        "begun": ("start of an alert", bool(data.alerts)),
        "began": ("where a change most likely began", bool(data.began)),
        "replaced": (
            f"{OTHER_REFERENCE} from here on; reference accuracy and thresholds are those of the last reference",
            bool(changes),
        ),
        "no-estimate": ("no estimate", any(point.accuracy is None for point in shown)),
    }
    stretches = without_estimate(shown, step_of(shown, None if series is None else series.step_seconds))
    evidence = {
        "value": "evidence of a change",
        "threshold": "budget: here an alert fires",
        "begun": legend["begun"][0],
        "began": legend["began"][0],
    }
    of_changes = replace(data, alerts=[Mark(one.alert, one.since) for one in segment.alerts if _is_active_change(one)])
    if not of_changes.alerts:
        del evidence["begun"]
    if not data.began:
        del evidence["began"]
    return {
        "evidence_chart": evidence_over_time(of_changes, WIDE),
        "evidence_phone_chart": evidence_over_time(of_changes, NARROW, pointed=False),
        "evidence_signs": evidence,
        "has_evidence": any(point.evidence is not None for point in shown),
        "chart": over_time(data, WIDE),
        "phone_chart": over_time(data, NARROW, pointed=False),
        "signs": {kind: text for kind, (text, there) in legend.items() if there},
        "has_history": series is not None,
        "stepped": stepped,
        "has_field": has_field,
        "point_count": len(shown),
        "shaded": list(dict.fromkeys(STATES[stretch.state] for stretch in stretches)),
        "changes": [clock(point.at) for point in changes],
        "points": [_point(point, changes) for point in shown[: -MOST_ROWS - 1 : -1]],
    }


def _is_active_change(alert: AlertStatus) -> bool:
    return alert.kind is AlertType.CHANGE and alert.phase is not AlertPhase.OK


def _point(point: Point, changes: Sequence[Point]) -> tuple[Point, str]:
    """Return a point of the history with its state in words."""
    state = "evaluated" if point.accuracy is not None else STATES[point.state]
    changed = any(one is point for one in changes)
    return point, f"{state}; {OTHER_REFERENCE} from here on" if changed else state


def thresholds(segment: SegmentReport) -> list[Mark]:
    """Return the thresholds of the accuracy alerts; equal ones share a label."""
    found: dict[float, list[str]] = {}
    for alert in segment.alerts:
        # That of the audited accuracy is not one of the estimate.
        if alert.estimator not in {None, AUDITED} and alert.threshold is not None:
            found.setdefault(alert.threshold, []).append(alert.alert)
    return [Mark(", ".join(names), value) for value, names in sorted(found.items())]


def _estimators(report: Report, segment: SegmentReport) -> dict[str, Any]:
    """Return the estimators, drawn on one scale; empty when the window has no results."""
    if not segment.results or not segment.valid:
        return {"estimators": {}, "axis": None}
    # An own baseline is that of the headline: other estimators have their own.
    own = None if report.reference is None else report.reference.accuracy
    own = segment.baseline.accuracy if segment.baseline is not None and _is_labelled(segment) else own
    estimates = segment.estimates()
    shown = [share for one in estimates.values() for share in (one.accuracy, *(one.interval or ()))]
    scale = ShareScale.around(
        [*shown, *([] if own is None else [own])],
        [estimates[member].accuracy for member in MEMBERS if member in estimates],
    )
    return {
        "axis": scale.axis(),
        "estimators": {
            name: {
                "filled": (filled := name in {*MEMBERS, CONSENSUS, ADAPTIVE}),
                "words": _form_words(name),
                "estimate": estimates.get(name),
                "no_estimate": "" if isinstance(result, Estimate) else REASONS[result.why],
                "chart": isinstance(result, Estimate)
                and scale.row(name, result.accuracy, result.interval, own, filled=filled),
            }
            for name, result in segment.results.items()
        },
    }


def _form_words(name: str) -> str:
    """Return what distinguishes an estimator from the others of its family."""
    words = ["anchored"] if "_anchored" in name else []
    words.append("temperature-scaled" if name.endswith("_ts") else "raw")
    return "" if name in {CONSENSUS, ADAPTIVE} else ", ".join([*words, *(["member"] if name in MEMBERS else [])])


def _performance(segment: SegmentReport, reference: Reference | None) -> dict[str, Any]:
    """Return what decisions are worth, by class, then of all classes; drawn on one scale."""
    calibration = None if reference is None else reference.calibration
    own = None if calibration is None else calibration.performance
    if reference is None or calibration is None or own is None or not segment.valid or not segment.performance:
        return {"performance": []}
    values, cases = (column[:, 0].tolist() for column in own.own.values([one.target for one in segment.performance]))
    ends = [end for one in segment.performance for end in ((one.value or 0.0, *one.interval) if one.interval else ())]
    limits = {alert: alert.threshold for alert in segment.alerts if alert.metric and alert.threshold is not None}
    scale = ShareScale.around([*ends, *limits.values(), *(value for value in values if not math.isnan(value))])
    groups: dict[int | None, list[dict[str, Any]]] = {}
    for one, value, of_reference in zip(segment.performance, values, cases, strict=True):
        name = WORDS[one.target.metric]
        before = or_none(value)
        its = (one.target.metric, None if one.target.of_class is None else reference.classes[one.target.of_class])
        own_limits = [limit for alert, limit in limits.items() if (alert.metric, alert.of_class) == its]
        groups.setdefault(one.target.of_class, []).append(
            {
                "name": name,
                "one": one,
                "reference": before,
                "change": None if one.value is None or before is None else one.value - before,
                "by_chance": before is not None and one.interval is not None and _contains(one.interval, before),
                "cannot_say": _too_few(one, of_reference),
                "chart": one.value is not None
                and scale.row(name, one.value, one.interval, before, thresholds=own_limits),
            }
        )
    first = calibration.decision.index if calibration.decision.by is DecidedBy.THRESHOLD else 1
    two = len(reference.classes) == 2
    order = sorted(groups, key=lambda one: (one is None, two and one != first, one or 0))
    named = [(None if one is None else reference.classes[one], groups[one]) for one in order]
    # Of two classes, one says all: the sensitivity of one is the specificity of the other.
    folded = (
        [one for one in named[1 if two else 0 :] if one[0] is not None] if two or len(named) > _MOST_OPEN + 1 else []
    )
    return {
        "performance": [one for one in named if one not in folded],
        "performance_folded": folded,
        "performance_limits": bool(limits),
        "performance_axis": scale.axis(),
        "performance_meanings": _meanings(segment.performance),
    }


def _meanings(shown: Sequence[Performance]) -> list[tuple[str, str]]:
    """Return the shown metrics with their keys in meanings.html."""
    found = [
        (name[0].upper() + name[1:], key) for key, name in WORDS.items() if key in {one.target.metric for one in shown}
    ]
    averaged = any(one.target.of_class is None and one.target.metric is not Metric.AUROC for one in shown)
    return [*found, *([("Macro average", "macro")] if averaged else [])]


def _contains(interval: Interval, value: float) -> bool:
    return interval.lower <= value <= interval.upper


def _too_few(one: Performance, of_reference: float) -> str:
    """Return how many cases there are of those that a metric needs; empty if it has a value."""
    if one.value is not None:
        return ""
    if not one.cases >= FEWEST_CASES:
        expected = math.floor(one.cases) if one.cases > 0.0 else 0
        return f"too few cases ({expected} expected, {FEWEST_CASES} needed)"
    found = f"{of_reference:,.0f}, {FEWEST_CASES} needed" if of_reference < FEWEST_CASES else "too few for an interval"
    return f"too few cases in the reference ({found})"


def _class_mix(segment: SegmentReport, reference: Reference | None) -> dict[str, Any]:
    """Return the estimated share of each class, that on the reference, and that of the decisions."""
    own = None if reference is None else reference.calibration.performance
    if reference is None or own is None or not segment.valid or not any(segment.class_mix):
        return {"mix": []}
    decided = max(1, sum(segment.predicted))
    rows = [
        (name, share, cases / own.records, count / decided)
        for name, share, cases, count in zip(
            reference.classes, segment.class_mix, own.cases.tolist(), segment.predicted, strict=True
        )
    ]
    if len(rows) > MOST_CLASSES:
        rows.sort(key=lambda row: -abs(row[1].value - row[2]) if row[1] else 0.0)
    shown = rows[:MOST_CLASSES]
    # A rare class is what matters, and a change of it would not show on a scale of all shares.
    scale = ShareScale.around_differences(
        end - before
        for _, share, before, now in shown
        for end in (now, *((share.value, *share.interval) if share else ()))
    )
    return {
        "mix": [
            (*row, share and scale.row(name, share.value, share.interval, before, decided=now))
            for row in shown
            for name, share, before, now in (row,)
        ],
        "mix_axis": scale.axis(),
        "mix_count": len(rows),
    }


def _classes(report: Report, segment: SegmentReport, reference: Reference | None) -> dict[str, Any]:
    """Return how often each class is predicted now, and was predicted on the reference."""
    facts = report.reference
    names = () if facts is None else facts.classes
    before = () if facts is None else facts.predicted
    if not before and reference is not None:
        before = reference.summary.class_predicted
    shares = class_shares(names, segment.predicted, before)
    shown = moved_most(shares)
    most = max((max(one.now, one.before or 0.0) for one in shown), default=0.0)
    return {"classes": [(one, pair_of_bars(one, most)) for one in shown], "class_count": len(shares)}


def _reference_of(site: Site, report: Report) -> Reference | None:
    """Return the reference of a report, if it is still in use."""
    reference = site.reference(report.model)
    if reference is None or report.reference is None or reference.fingerprint != report.reference.fingerprint:
        return None
    return reference
