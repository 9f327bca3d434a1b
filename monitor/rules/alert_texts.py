"""Texts of alerts: Prometheus templates that make sense when series are absent."""

from dataclasses import dataclass

from monitor.core.alerts import AlertRule, AlertType, On, is_high
from monitor.core.label_values import quoted
from monitor.rules import replicas as merged
from monitor.rules.rule import duration

_COMPARED = {On.VALUE: "It", On.LOWER: "Its lower bound", On.UPPER: "Its upper bound"}
TO_DO = {
    AlertType.ACCURACY: "Tell whoever answers for the model, and have some of the latest cases from there labelled.",
    AlertType.DISAGREEMENT: "Have some of the latest cases from there labelled.",
    AlertType.SILENT: "Ask there whether the model is in use. If it is, follow its records on their way to cpcmon.",
    AlertType.DEGRADED_INPUT: "Look at what writes the records; the page of cpcmon says what they might be.",
}
"""The first thing, for somebody who cannot open the runbook."""
IF_SUSPICIOUS = "Look at some raw outputs at their source before anybody relies on it."


PER_CENT = "{{ . | first | value | humanizePercentage }}"
TIME = "{{ . | first | value | humanizeTimestamp }}"


@dataclass(frozen=True, slots=True)
class AlertText:
    """Where the numbers come from that an alert tells."""

    target: tuple[str, ...]
    """Labels that tell one origin from another."""
    ratio: str
    lower: str
    upper: str
    disagreement: str
    by_replicas: bool

    @property
    def window(self) -> tuple[str, ...]:
        """Labels of a window."""
        return (*self.target, "model", "segment")


ONE_DAEMON = AlertText(
    ("instance",),
    "cpcmon_estimated_accuracy_ratio",
    "cpcmon_estimated_accuracy_lower_ratio",
    "cpcmon_estimated_accuracy_upper_ratio",
    "cpcmon_estimator_disagreement_ratio",
    by_replicas=False,
)
ALL_REPLICAS = AlertText(
    ("job", "namespace"), merged.RATIO, merged.LOWER, merged.UPPER, merged.DISAGREEMENT, by_replicas=True
)


def description(rule: AlertRule, told: AlertText) -> str:
    """Say where, what, since when and what to do. What is not known at the moment is left out, or said so."""
    of_alert = (*told.window, "alert")
    since = held = ""
    if not told.by_replicas:
        since = if_series("cpcmon_alert_since_timestamp_seconds", f" Firing since {TIME}.", of_alert)
        held = if_series(
            "cpcmon_alert_held", " It cannot be judged now and stays as it was.", of_alert, compared=" == 1"
        )
    where = "{{ $labels.model }}, {{ $labels.segment }}" + (", all replicas together" if told.by_replicas else "")
    return f"{where}: {_said(rule, told)}{since}{held} {IF_SUSPICIOUS if is_high(rule) else TO_DO[rule.kind]}"


def _said(rule: AlertRule, told: AlertText) -> str:
    match rule.kind:
        case AlertType.ACCURACY:
            return _accuracy(rule, told)
        case AlertType.DISAGREEMENT:
            found = if_series(told.disagreement, f" by {PER_CENT}", told.window)
            chance = if_series(
                "cpcmon_estimator_chance_disagreement_ratio",
                f", where chance alone stays below {PER_CENT}",
                told.window,
            )
            allowed = chance if rule.above is None else f", where {_per_cent(rule.above)} is allowed"
            return f"the estimators disagree{found}{allowed}. No estimate deserves trust until it is known why."
        case AlertType.SILENT:
            last = if_series("cpcmon_last_record_timestamp_seconds", f" The newest was made {TIME}.", told.window)
            return f"no record came for {duration(rule.after_seconds)}.{last}"
        case AlertType.DEGRADED_INPUT:
            of_model = (*told.target, "model")
            share = if_series("cpcmon_input_rejected_ratio", f" (refused: {PER_CENT})", of_model)
            return f"too many of the latest records are refused or look odd{share}. The accuracy cannot be said."


def _accuracy(rule: AlertRule, told: AlertText) -> str:
    estimator = f"estimator={quoted(rule.estimator)}"
    value = if_series(told.ratio, f" {PER_CENT}", told.window, also=estimator, otherwise=" unknown at the moment")
    lower = if_series(told.lower, f", from {PER_CENT}", told.window, also=estimator)
    upper = if_series(told.upper, f" to {PER_CENT}", told.window, also=estimator)
    dwell = f" for {duration(rule.for_seconds)}" if rule.for_seconds else ""
    new = "" if told.by_replicas else " and over enough new records"
    return (
        f"estimated accuracy{value}{lower}{upper}, by {rule.estimator}."
        f" {_COMPARED[rule.on]} stayed {_limit(rule, told)}{dwell}{new}."
    )


def _limit(rule: AlertRule, told: AlertText) -> str:
    if rule.drop is None:
        side, ratio = ("over", rule.above) if rule.below is None else ("under", rule.below)
        return f"{side} {_per_cent(ratio)}"
    # A number to compare with, where it is known: nobody has the accuracy on the reference in mind.
    number = if_series("cpcmon_accuracy_threshold_ratio", f" {PER_CENT},", (*told.window, "alert"))
    return f"under{number} the accuracy on the reference less {100.0 * rule.drop:g} points,"


def _per_cent(ratio: float | None) -> str:
    return "its limit" if ratio is None else f"{100.0 * ratio:g}%"


def if_series(
    series: str, text: str, same: tuple[str, ...], *, compared: str = "", also: str = "", otherwise: str = ""
) -> str:
    """Return the template that says a text if there is a series with the same labels as the alert; it may use its value."""
    labels = ",".join([*(f"{name}=%q" for name in same), *([also] if also else [])])
    query = f"query (printf `{series}{{{labels}}}{compared}` {' '.join(f'$labels.{name}' for name in same)})"
    return f"{{{{ with {query} }}}}{text}{f'{{{{ else }}}}{otherwise}' if otherwise else ''}{{{{ end }}}}"


_WHERE = "{{ $labels.model }}, {{ $labels.segment }}: "
_WINDOW = ONE_DAEMON.window
_ALERT = (*_WINDOW, "alert")
_THRESHOLD = "cpcmon_accuracy_threshold_ratio"
_SINCE = if_series("cpcmon_alert_since_timestamp_seconds", f" Firing since {TIME}.", _ALERT)
_HELD = if_series("cpcmon_alert_held", " It cannot be judged now and stays as it was.", _ALERT, compared=" == 1")


def _of_its_estimator(series: str, text: str, otherwise: str = "") -> str:
    """Return the template that says a text with the value of the estimator that the alert looks at."""
    same = ",".join(f"{name}=%q" for name in _WINDOW)
    alert = ",".join(f"{name}=%q" for name in _ALERT)
    labels = " ".join(f"$labels.{name}" for name in (*_WINDOW, *_ALERT))
    query = f"query (printf `{series}{{{same}}} and on (estimator) {_THRESHOLD}{{{alert}}}` {labels})"
    return f"{{{{ with {query} }}}}{text}{f'{{{{ else }}}}{otherwise}' if otherwise else ''}{{{{ end }}}}"


def _generic_accuracy(side: str, to_do: str) -> str:
    value = _of_its_estimator(ONE_DAEMON.ratio, f" {PER_CENT}", " unknown at the moment")
    lower = _of_its_estimator(ONE_DAEMON.lower, f", from {PER_CENT}")
    upper = _of_its_estimator(ONE_DAEMON.upper, f" to {PER_CENT}")
    estimator = if_series(_THRESHOLD, ", by {{ . | first | label `estimator` }}", _ALERT)
    limit = if_series(_THRESHOLD, f" {PER_CENT}", _ALERT, otherwise=" its threshold")
    return (
        f"{_WHERE}estimated accuracy{value}{lower}{upper}{estimator}. {{{{ $labels.alert }}}} stayed {side}{limit} for as"
        f" long as is configured.{_SINCE}{_HELD} {to_do}"
    )


ACCURACY_LOW = _generic_accuracy("under", TO_DO[AlertType.ACCURACY])
ACCURACY_HIGH = _generic_accuracy("over", IF_SUSPICIOUS)
_MERGED = if_series(
    ALL_REPLICAS.ratio,
    " {{ $value | humanizePercentage }}",
    (*ALL_REPLICAS.window, "estimator"),
    otherwise=" unknown at the moment",
)
"""The value is that of the end which is compared, and only while there is one."""
_HOLD = if_series(
    "cpcmon_alert_for_seconds",
    " for {{ . | first | value | humanizeDuration }}",
    (*ALL_REPLICAS.target, "model", "alert"),
)
MERGED_LOW = (
    f"{{{{ $labels.model }}}}, {{{{ $labels.segment }}}}, all replicas together: estimated accuracy{_MERGED}"
    f" by {{{{ $labels.estimator }}}} ({{{{ $labels.alert }}}} compares the {{{{ $labels.on }}}}), under its threshold"
    f"{_HOLD}. {TO_DO[AlertType.ACCURACY]}"
)
DISAGREEMENT = (
    f"{_WHERE}the estimators disagree{if_series(ONE_DAEMON.disagreement, f' by {PER_CENT}', _WINDOW)}"
    f". No estimate deserves trust until it is known why.{_SINCE}{_HELD} {TO_DO[AlertType.DISAGREEMENT]}"
)
SILENT = (
    f"{_WHERE}no record came for longer than is configured."
    f"{if_series('cpcmon_last_record_timestamp_seconds', f' The newest was made {TIME}.', _WINDOW)}{_SINCE}"
    f" {TO_DO[AlertType.SILENT]}"
)
REFUSED = (
    "{{ $labels.model }}: too many of the latest records are refused or look odd"
    f"{if_series('cpcmon_input_rejected_ratio', f' (refused: {PER_CENT})', ('instance', 'model'))}. The accuracy cannot be"
    f" said. {TO_DO[AlertType.DEGRADED_INPUT]}"
)
