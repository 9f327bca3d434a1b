"""The list `models`, and the alerts of each model."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from monitor.config.config import CLASS_MIX, AuditOptions, Cron, Every, LabelOptions, ModelConfig
from monitor.core.alerts import AlertRule, AlertType, On, Severity
from monitor.core.baselines.comparison import BaselineMode, BaselineOptions
from monitor.core.change import Direction
from monitor.core.estimate import ADAPTIVE, AUDITED, CONSENSUS, HEADLINE
from monitor.core.estimators import ESTIMATORS
from monitor.core.performance import Metric
from monitor.core.scores import MOST_RECORDS
from monitor.core.segments import ALL, Segmentation, name_of
from monitor.core.window import Bounds
from monitor.records.record_schema import OutputKind
from monitor.settings.kinds import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Number,
    OneOf,
    SettingKind,
    Text,
    TimesPer,
    invalid,
)
from monitor.settings.section import Section
from monitor.settings.yaml_text import Node

_NAME = Text("a name of letters, digits and _, at most 64, no digit first", re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"))
_LONGEST_HOLD = 366 * 86400.0
_DEFAULT = AlertRule("default", AlertType.DEGRADED_INPUT)
_HOLD = {
    AlertType.CHANGE: 0.0,
    AlertType.ACCURACY: 1800.0,
    AlertType.DISAGREEMENT: 1800.0,
    AlertType.OUTPUT_DRIFT: 1800.0,
    AlertType.BASELINE_GAP: 600.0,
    AlertType.SILENT: 0.0,
    AlertType.DEGRADED_INPUT: 600.0,
}
"""Default of `for`, in seconds. A change alert has none: it fires at once."""
_NEW_RECORDS = {AlertType.ACCURACY: 0.2, AlertType.DISAGREEMENT: 1.0, AlertType.OUTPUT_DRIFT: 0.2}
"""Default of `new_records`."""

_CLASS = Text("the name of a class")
_PERFORMANCE = ListOf(OneOf((*map(str, Metric), CLASS_MIX)), "a list such as [sensitivity, specificity, class_mix]")
_PERFORMANCE.type_name = f"list of {_PERFORMANCE.kind.type_name}"

_TIME = Text("a date or time such as 2026-01-31 or 2026-01-31T08:00:00Z", re.compile(r"(19|20)\d\d-\d\d-\d\d.*"))


class Period(SettingKind[tuple[float, float]]):
    """A period from one time to a later one; in Unix seconds. Without a zone, times are in UTC."""

    type_name = "period"
    expected = "two times such as {from: 2026-01-31, to: 2026-02-01T08:00:00Z}, from one to a later one"
    placeholder = (0.0, 1.0)

    def read(self, node: Node) -> tuple[float, float]:
        """Return start and end."""
        times = MapOf(_TIME, _TIME, self.expected).read(node)
        begin, end = (_unix_time(times.get(key, "")) for key in ("from", "to"))
        if len(times) != 2 or begin is None or end is None or not begin < end:
            raise invalid(node, self.expected, found=MapOf(_TIME, _TIME, "").show(times)[:200])
        return begin, end

    def show(self, value: tuple[float, float]) -> str:
        """Return the times in UTC."""
        texts = (datetime.fromtimestamp(one, UTC).isoformat().replace("+00:00", "Z") for one in value)
        return "{{from: {}, to: {}}}".format(*map(_TIME.show, texts))


def _unix_time(text: str) -> float | None:
    """Return a time in Unix seconds, in UTC without a zone; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


_PERIOD = Period()
_PERIODS = ListOf(_PERIOD, "a list of periods such as [{from: 2026-01-31, to: 2026-02-01T08:00:00Z}]")

_OWN_SETTINGS: Mapping[AlertType, tuple[str, ...]] = {
    AlertType.CHANGE: ("tolerance", "false_alarms", "direction", "group_by", "maintenance", "hysteresis"),
    AlertType.ACCURACY: (
        "estimator",
        "metric",
        "class",
        "below",
        "drop",
        "above",
        "on",
        "hysteresis",
        "new_records",
    ),
    AlertType.DISAGREEMENT: ("above", "hysteresis", "new_records"),
    AlertType.OUTPUT_DRIFT: ("above", "hysteresis", "new_records"),
    AlertType.BASELINE_GAP: (),
    AlertType.SILENT: ("after",),
    AlertType.DEGRADED_INPUT: (),
}
"""Keys of one alert type, beside those of every alert."""

_SEVERITY = {AlertType.CHANGE: Severity.CRITICAL, AlertType.BASELINE_GAP: Severity.CRITICAL}
"""Default of `severity`; a warning for other types."""

DEFAULT_ALERTS: Mapping[AlertType, str] = {
    AlertType.CHANGE: "accuracy_drop",
    AlertType.OUTPUT_DRIFT: "output_drift",
    AlertType.BASELINE_GAP: "baseline_gap",
}
"""Types that a model has even if it lists no alert of that type, with the names of these alerts."""

NAMES = (ADAPTIVE, CONSENSUS, AUDITED, *dict.fromkeys(form.name for member in ESTIMATORS for form in member.forms()))
"""The estimators that an alert may use."""


def read_alert(section: Section, segmentation: Segmentation | None) -> AlertRule | None:
    """Return one rule; None after a problem. Without a segmentation, its segments are not checked."""
    name = section.get("name", _NAME)
    kind = section.get("type", Choice(AlertType), AlertType.SILENT if section.has("after") else AlertType.ACCURACY)
    severity = section.get("severity", Choice(Severity), _SEVERITY.get(kind, _DEFAULT.severity))
    hold = _HOLD[kind]
    if kind is AlertType.CHANGE:
        section.forbid("for", " for an alert of type change: it fires at once")
    else:
        hold = section.get("for", Duration(0.0, _LONGEST_HOLD), hold)
    segments = section.get("segments", ListOf(Text(), "a list of names such as all and site=*", 1), _DEFAULT.segments)
    if segmentation is not None:
        _check_segments(section, segments, segmentation)
    own = _OWN_SETTINGS[kind]
    for key in dict.fromkeys(key for keys in _OWN_SETTINGS.values() for key in keys):
        if key not in own:
            section.forbid(key, f" for an alert of type {kind}")
    thresholds: dict[str, float | None] = {
        key: section.get(key, Number(), None) for key in ("below", "drop", "above") if key in own
    }
    on, estimator, metric, of_class = _DEFAULT.on, _DEFAULT.estimator, _DEFAULT.metric, _DEFAULT.of_class
    if kind is AlertType.ACCURACY:
        on = section.get("on", Choice(On), On.LOWER if section.has("above") else On.UPPER)
        estimator = section.get("estimator", OneOf(NAMES), estimator)
        metric = section.get("metric", Choice(Metric), None)
        of_class = section.get("class", _CLASS, None)
        _check_metric(section, metric)
        _check_estimator(section, estimator, on)
    _check_thresholds(section, kind, thresholds)
    hysteresis, new_records = _DEFAULT.hysteresis, _DEFAULT.new_records
    if "hysteresis" in own:
        hysteresis = section.get("hysteresis", Number(0.0, 0.5), hysteresis)
    if kind in _NEW_RECORDS:
        new_records = section.get("new_records", Number(0.0, 10.0), _NEW_RECORDS[kind])
    after = section.get("after", Duration(1.0, _LONGEST_HOLD)) if kind is AlertType.SILENT else 0.0
    change = _change(section) if kind is AlertType.CHANGE else _DEFAULT
    if not section.clean:
        return None
    return replace(
        change,
        name=name,
        kind=kind,
        severity=severity,
        estimator=estimator,
        below=thresholds.get("below"),
        drop=thresholds.get("drop"),
        above=thresholds.get("above"),
        on=on,
        for_seconds=hold,
        hysteresis=hysteresis,
        new_records=new_records,
        after_seconds=after,
        segments=segments,
        metric=metric,
        of_class=of_class,
    )


def _change(section: Section) -> AlertRule:
    """Return a rule with the settings that only type change has."""
    return replace(
        _DEFAULT,
        tolerance=section.get("tolerance", Number(0.001, 0.5), None),
        false_alarm_seconds=section.get("false_alarms", _FALSE_ALARMS, _DEFAULT.false_alarm_seconds),
        direction=section.get("direction", Choice(Direction), _DEFAULT.direction),
        group_by=section.get("group_by", NAME, None),
        maintenance=section.get("maintenance", _PERIODS, _DEFAULT.maintenance),
    )


def _check_estimator(section: Section, estimator: str, on: On) -> None:
    """Report keys that do not go with the estimator of an alert."""
    if on.of_field and (estimator != HEADLINE or section.has("metric")):
        found = "a metric" if section.has("metric") else f"estimator: {estimator}"
        section.report("on", f"value, lower or upper: only {HEADLINE} has a field interval", f"{on} beside {found}")
    if estimator == AUDITED:
        section.forbid("drop", " beside estimator: audited, which has no baseline: use below")
        section.forbid("new_records", " beside estimator: audited, since labels come without new records")


def _check_metric(section: Section, metric: Metric | None) -> None:
    """Report keys that do not go with the metric of an alert, or with none."""
    if not section.has("metric"):
        if section.has("class"):
            section.report("class", "a metric of the class, such as metric: sensitivity", "none")
        return
    section.forbid("estimator", " beside metric, which has a single estimate")
    if metric is Metric.AUROC:
        section.forbid("class", " beside metric: auroc, which is of both classes")


def _check_thresholds(section: Section, kind: AlertType, thresholds: Mapping[str, float | None]) -> None:
    """Report unless there is the right number of thresholds, and one at which the alert can fire."""
    given = [key for key in thresholds if section.has(key)]
    if kind is AlertType.ACCURACY and len(given) != 1:
        section.report_group("exactly one of below, drop and above", " and ".join(given) or "none of them")
    elif given == ["below"] and thresholds["below"] == 0.0:
        section.report("below", "a number above 0", "0, at which it could never fire")
    elif given and given != ["below"] and thresholds[given[0]] == 1.0:
        section.report(given[0], "a number below 1", "1, at which it could never fire")


def _check_segments(section: Section, patterns: tuple[str, ...], segmentation: Segmentation) -> None:
    """Report patterns that no segment of the model can match: such an alert could never fire."""
    for pattern in patterns:
        if AlertRule("any", AlertType.SILENT, after_seconds=1.0, segments=(pattern,)).applies_to(name_of(ALL)):
            continue
        fields = [part.partition("=")[0] for part in pattern.split(",")]
        if any(
            len(names) == len(fields)
            and all("*" in one or one == name for one, name in zip(fields, names, strict=True))
            for names in segmentation.split_by
        ):
            continue
        known = ["all", *(",".join(f"{name}=*" for name in names) for names in segmentation.split_by)]
        section.report("segments", f"segments such as {' or '.join(known)}", repr(pattern[:80]))


_DEFAULT_TYPES = ListOf(OneOf(tuple(map(str, DEFAULT_ALERTS))), "a list such as [change, output_drift]")
_DEFAULT_TYPES.type_name = f"list of {_DEFAULT_TYPES.kind.type_name}"

ShortestGap = Callable[[str], float]
"""Returns the shortest time between two runs of a crontab line; raises ValueError with its problem."""

NAME = Text("a name of letters, digits and . _ -, at most 64", re.compile(r"[A-Za-z0-9_.-]{1,64}"))
_DECISION = Text("argmax, field, or CLASS=THRESHOLD such as cancer=0.13", re.compile(r"argmax|field|.+=[^=]+"))
_LONGEST = 3660 * 86400.0
_FORGET_SECONDS = 30 * 86400.0
_MOST_ALERTS = 100
_FALSE_ALARMS = TimesPer(3600.0, _LONGEST)


_FIELD_SETS = ListOf(
    ListOf(NAME, "a field, or a list of fields", or_one=True),
    "a list of fields, or of lists of fields, such as [[site], [site, scanner]]",
)
"""Sets of segment fields: `[[site], [site, scanner]]`, or `[site]` for a single field."""
_FIELD_SETS.type_name = "list of fields, or of lists of fields"


def read_model(section: Section, folder: Path, shortest_gap: ShortestGap | None) -> ModelConfig | None:
    """Return one model; None after a problem."""
    default = ModelConfig("", None)
    name = section.get("name", NAME)
    version = section.get("version", Text('a string such as "2.1"'), None)
    reference = section.get("reference", FilePath(folder, "the path of a reference file"), None)
    kind = section.get("kind", Choice(OutputKind), default.kind)
    decide = section.get("decide", _DECISION, None)
    bounds = _bounds(section.section("window"))
    baseline = _baseline(section)
    segmentation = _segmentation(section)
    evaluate = _evaluate(section.section("evaluate"), shortest_gap)
    _refuse_variants(section)
    section.forbid("realised", ", which was removed: send the labels themselves; see docs/labels.md")
    minimum = section.get("minimum_records", Integer(1, MOST_RECORDS), default.minimum_records)
    performance = section.get("performance", _PERFORMANCE, default.performance)
    watch_classes = section.get("watch_classes", ListOf(_CLASS, "a list of names of classes"), default.watch_classes)
    audit = _audit(section.section("audit", optional=True))
    labels = _labels(section.section("labels", optional=True))
    _check_once(section, "performance", performance)
    _check_once(section, "watch_classes", watch_classes)
    if bounds is not None and evaluate is not None:
        _check_together(section, bounds, evaluate)
    model = ModelConfig(
        name=name,
        reference=reference,
        version=version,
        kind=kind,
        decide=decide,
        bounds=bounds or default.bounds,
        segmentation=segmentation or default.segmentation,
        versions_alike=section.get("any_version", Flag(), default.versions_alike),
        most_ids=section.get("remember_ids", Integer(1, 100_000_000), default.most_ids),
        evaluate=evaluate or default.evaluate,
        minimum_records=minimum,
        stale_after_seconds=section.get("stale_after", Duration(1.0, _LONGEST), None),
        alerts=_alerts(section, segmentation, baseline.gap, audited=audit is not None),
        baseline=baseline,
        performance=performance,
        watch_classes=watch_classes,
        labels=labels,
        audit=audit,
    )
    return model if section.clean else None


def _labels(section: Section) -> LabelOptions | None:
    default = LabelOptions()
    horizon = section.get("horizon", Duration(60.0, _LONGEST), default.horizon_seconds)
    most = section.get("most", Integer(1, 100_000_000), default.most)
    delay = section.get("delay", Duration(0.0, _LONGEST), default.delay_seconds)
    if delay >= horizon:
        show = Duration(0.0, _LONGEST).show
        expected = f"less than horizon, {show(horizon)}: older predictions are not kept"
        section.report("delay" if section.has("delay") else "horizon", expected, show(delay))
    return LabelOptions(horizon, most, delay) if section.given else None


def _audit(section: Section) -> AuditOptions | None:
    share = section.get("share", Number())
    keep_ids = section.get("keep_ids", Flag(), False)
    if not section.given:
        return None
    if section.clean and not share:
        section.report("share", "a number above 0", "0, with which no record is audited")
    return AuditOptions(share, keep_ids)


def _check_once(section: Section, key: str, names: Sequence[str]) -> None:
    for name in sorted({name for name in names if names.count(name) > 1}):
        section.report(key, "each name once", f"{name!r} again")


def _bounds(window: Section) -> Bounds | None:
    age = window.get("age", Duration(1.0, _LONGEST), None)
    default = Bounds(records=ModelConfig("", None).bounds.records)
    records = window.get("records", Integer(1, MOST_RECORDS), default.records if age is None else None)
    tolerance = window.get("tolerance", Duration(0.0, 366 * 86400.0), default.tolerance_seconds)
    most = window.get("most_records", Integer(1, MOST_RECORDS), default.most_records)
    if not window.clean:
        return None
    return Bounds(records, age, tolerance, most)


def _segmentation(section: Section) -> Segmentation | None:
    split_by = section.get("segment_by", _FIELD_SETS, ())
    segments = section.section("segments")
    limit = segments.get("limit", Integer(0, 100_000), Segmentation().most_segments)
    forget = segments.get("forget_after", Duration(60.0, _LONGEST), _FORGET_SECONDS)
    try:
        return Segmentation(split_by, limit, forget)
    except ValueError:
        section.report("segment_by", "sets of different fields, each set once", _FIELD_SETS.show(split_by))
        return None


def _evaluate(section: Section, shortest_gap: ShortestGap | None) -> Every | Cron | None:
    cron = section.get("cron", Text('a crontab line such as "*/5 * * * *"'), None)
    every = section.get("every", Duration(0.1, 7 * 86400.0), Every().seconds if cron is None else None)
    if cron is None:
        return None if every is None else Every(every)
    if section.has("every"):
        section.report("cron", "either every or cron", "both")
        return None
    if shortest_gap is None:
        return Cron(cron)
    try:
        return Cron(cron, shortest_gap(cron))
    except ValueError as error:
        section.report("cron", 'a crontab line such as "*/5 * * * *"', f"{cron[:80]!r}: {error}")
        return None


def _refuse_variants(section: Section) -> None:
    """Reject the variants `skip`, `zero` and `absolute`, which older versions had. An empty group is allowed."""
    group = section.section("estimators", optional=True)
    group.ignore_unknown_keys()
    if group.given and section.has("estimators"):
        section.report("estimators", "nothing: only `cpcmon estimate` and `cpcmon evaluate` have variants", "variants")


def _baseline(section: Section) -> BaselineOptions:
    default = BaselineOptions()
    mode = section.get("baseline", Choice(BaselineMode), default.mode)
    records = section.get("baseline_records", Integer(1, MOST_RECORDS), None)
    gap = section.get("baseline_gap", Number(), default.gap)
    return BaselineOptions(mode, records, section.get("baseline_period", _PERIOD, None), gap)


def _alerts(section: Section, segmentation: Segmentation | None, gap: float, *, audited: bool) -> tuple[AlertRule, ...]:
    """Return the alerts of a model, and behind them the default ones."""
    wanted = section.get("default_alerts", _DEFAULT_TYPES, tuple(map(str, DEFAULT_ALERTS)))
    rules, lines = list[AlertRule](), dict[str, int]()
    for one in section.sections("alerts", most=_MOST_ALERTS):
        rule = read_alert(one, segmentation)
        if rule is None:
            continue
        if rule.name in lines:
            one.report("name", "each name once in a model", f"{rule.name!r} again, after line {lines[rule.name]}")
        lines.setdefault(rule.name, one.line("name"))
        _check_changes(one, rule, rules)
        if rule.estimator == AUDITED and not audited:
            one.report("estimator", "an estimator, or a model with an audit such as audit: {share: 0.02}", AUDITED)
        rules.append(rule)
    given = {rule.kind for rule in rules}
    for kind, name in DEFAULT_ALERTS.items():
        if kind in wanted and kind not in given:
            free = name if name not in lines else f"{name}_by_default"
            severity, needed = _SEVERITY.get(kind, _DEFAULT.severity), _NEW_RECORDS.get(kind, _DEFAULT.new_records)
            rules.append(AlertRule(free, kind, severity, for_seconds=_HOLD[kind], new_records=needed))
    return tuple(replace(rule, drop=gap) if rule.kind is AlertType.BASELINE_GAP else rule for rule in rules)


def _check_changes(section: Section, rule: AlertRule, before: Sequence[AlertRule]) -> None:
    """Report alerts of type change that one model cannot have together: each has its own evidence of all records."""
    for other in before:
        if not rule.kind is other.kind is AlertType.CHANGE:
            continue
        if rule.direction is other.direction:
            expected = "one alert of type change for each direction of a model"
            section.report(
                "direction", expected, f"{rule.direction} again, after alert {other.name}: remove one of them"
            )
        elif rule.group_by != other.group_by:
            expected = f"the same group_by as alert {other.name}, {other.group_by or 'none'}"
            section.report("group_by", expected, rule.group_by or "none")


def _check_together(section: Section, bounds: Bounds, evaluate: Every | Cron) -> None:
    if bounds.age_seconds is not None and isinstance(evaluate, Every) and bounds.age_seconds < evaluate.seconds:
        show = Duration(0.0, _LONGEST).show
        expected = f"evaluate.every of at most window.age, {show(bounds.age_seconds)}, or some records would never be evaluated"
        section.report("evaluate" if section.has("evaluate") else "window", expected, show(evaluate.seconds))
