"""The list `alerts` of a model: each alert becomes a rule, and settings that do not fit its type are mistakes."""

import re
from collections.abc import Mapping

from monitor.configuration.kinds import ListOf
from monitor.configuration.number_kinds import Duration, Number
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Choice, OneOf, Text
from monitor.core.alerts import CONSENSUS, Kind, On, Rule, Severity
from monitor.core.estimators import ESTIMATORS
from monitor.core.segments import ALL, Segmentation, name_of

_NAME = Text("a name of letters, digits and _, at most 64, no digit first", re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"))
_LONGEST = 366 * 86400.0
_DEFAULT = Rule("default", Kind.DEGRADED_INPUT)
_HOLD = {Kind.ACCURACY: 1800.0, Kind.DISAGREEMENT: 1800.0, Kind.SILENT: 0.0, Kind.DEGRADED_INPUT: 600.0}
"""How long a condition holds before the alert fires, unless told otherwise."""
_NEW_RECORDS = {Kind.ACCURACY: 0.2, Kind.DISAGREEMENT: 1.0}
"""Which share of the window must be new before the alert fires."""

_OWN_SETTINGS: Mapping[Kind, tuple[str, ...]] = {
    Kind.ACCURACY: ("estimator", "below", "drop", "above", "on", "hysteresis", "new_records"),
    Kind.DISAGREEMENT: ("above", "hysteresis", "new_records"),
    Kind.SILENT: ("after",),
    Kind.DEGRADED_INPUT: (),
}
"""Beside name, type, for, segments and severity, which every alert has."""

NAMES = (CONSENSUS, *dict.fromkeys(form.name for member in ESTIMATORS for form in member.forms()))
"""The estimators that an alert may look at."""


def read_alert(section: Section, segmentation: Segmentation | None) -> Rule | None:
    """Return one rule; None after a mistake. Without a segmentation, nothing is said of its segments."""
    name = section.get("name", _NAME)
    kind = section.get("type", Choice(Kind), Kind.SILENT if section.has("after") else Kind.ACCURACY)
    severity = section.get("severity", Choice(Severity), _DEFAULT.severity)
    hold = section.get("for", Duration(0.0, _LONGEST), _HOLD[kind])
    segments = section.get("segments", ListOf(Text(), "a list of names such as all and site=*", 1), _DEFAULT.segments)
    if segmentation is not None:
        _check_segments(section, segments, segmentation)
    own = _OWN_SETTINGS[kind]
    for key in dict.fromkeys(key for keys in _OWN_SETTINGS.values() for key in keys):
        if key not in own:
            section.refuse(key, f" for an alert of type {kind}")
    thresholds: dict[str, float | None] = {
        key: section.get(key, Number(), None) for key in ("below", "drop", "above") if key in own
    }
    on, estimator = _DEFAULT.on, _DEFAULT.estimator
    if kind is Kind.ACCURACY:
        on = section.get("on", Choice(On), On.LOWER if section.has("above") else On.UPPER)
        estimator = section.get("estimator", OneOf(NAMES), estimator)
        _check_thresholds(section, thresholds)
    hysteresis, new_records = _DEFAULT.hysteresis, _DEFAULT.new_records
    if kind in _NEW_RECORDS:
        hysteresis = section.get("hysteresis", Number(0.0, 0.5), hysteresis)
        new_records = section.get("new_records", Number(0.0, 10.0), _NEW_RECORDS[kind])
    after = section.get("after", Duration(1.0, _LONGEST)) if kind is Kind.SILENT else 0.0
    if not section.clean:
        return None
    return Rule(
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
    )


def _check_thresholds(section: Section, thresholds: Mapping[str, float | None]) -> None:
    """Note that there is not exactly one threshold, or one at an end of the scale, where it could never fire."""
    given = [key for key in thresholds if section.has(key)]
    if len(given) != 1:
        section.tell_all("exactly one of below, drop and above", " and ".join(given) or "none of them")
    elif given == ["below"] and thresholds["below"] == 0.0:
        section.tell("below", "a number above 0", "0, under which no accuracy is")
    elif given != ["below"] and thresholds[given[0]] == 1.0:
        section.tell(given[0], "a number below 1", "1, with which it could never fire")


def _check_segments(section: Section, patterns: tuple[str, ...], segmentation: Segmentation) -> None:
    """Note patterns that no segment of the model can ever match: such an alert would be silent for ever."""
    for pattern in patterns:
        if Rule("any", Kind.SILENT, after_seconds=1.0, segments=(pattern,)).applies_to(name_of(ALL)):
            continue
        fields = [part.partition("=")[0] for part in pattern.split(",")]
        if any(
            len(names) == len(fields)
            and all("*" in one or one == name for one, name in zip(fields, names, strict=True))
            for names in segmentation.split_by
        ):
            continue
        known = ["all", *(",".join(f"{name}=*" for name in names) for names in segmentation.split_by)]
        section.tell("segments", f"segments such as {' or '.join(known)}", repr(pattern[:80]))
