"""What people read when an alert fires: templates of Prometheus that say something sensible when series are absent."""

from dataclasses import dataclass

from monitor.core.alert_rules import Kind, On, Rule
from monitor.sinks import replica_recording as merged
from monitor.sinks.labels import quoted
from monitor.sinks.prometheus_rule import duration

_COMPARED = {On.VALUE: "It", On.LOWER: "Its lower bound", On.UPPER: "Its upper bound"}
TO_DO = {
    Kind.ACCURACY: "Tell whoever answers for the model, and have some of the latest cases from there labelled.",
    Kind.DISAGREEMENT: "Have some of the latest cases from there labelled.",
    Kind.SILENT: "Ask there whether the model is in use. If it is, follow its records on their way to cpcmon.",
    Kind.DEGRADED_INPUT: "Look at what writes the records; the page of cpcmon says what they might be.",
}
"""The first thing, for somebody who cannot open the runbook."""
IF_SUSPICIOUS = "Look at some raw outputs at their source before anybody relies on it."

LOW, HIGH = "accuracy_low", "accuracy_high"
"""Kinds of alerts on accuracy, as labels."""

PER_CENT = "{{ . | first | value | humanizePercentage }}"
TIME = "{{ . | first | value | humanizeTimestamp }}"


@dataclass(frozen=True, slots=True)
class Told:
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


ONE_DAEMON = Told(
    ("instance",),
    "cpcmon_estimated_accuracy_ratio",
    "cpcmon_estimated_accuracy_lower_ratio",
    "cpcmon_estimated_accuracy_upper_ratio",
    "cpcmon_estimator_disagreement_ratio",
    by_replicas=False,
)
ALL_REPLICAS = Told(
    ("job", "namespace"), merged.RATIO, merged.LOWER, merged.UPPER, merged.DISAGREEMENT, by_replicas=True
)


def is_high(rule: Rule) -> bool:
    """Tell whether a rule looks for an accuracy that is too good to be true."""
    return rule.kind is Kind.ACCURACY and rule.above is not None


def kind_label(rule: Rule) -> str:
    """Return the word by which Prometheus tells the alerts of one kind from others, whatever they are called."""
    if rule.kind is Kind.ACCURACY:
        return HIGH if is_high(rule) else LOW
    return str(rule.kind)


def description(rule: Rule, told: Told) -> str:
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


def _said(rule: Rule, told: Told) -> str:
    match rule.kind:
        case Kind.ACCURACY:
            return _accuracy(rule, told)
        case Kind.DISAGREEMENT:
            found = if_series(told.disagreement, f" by {PER_CENT}", told.window)
            chance = if_series(
                "cpcmon_estimator_chance_disagreement_ratio",
                f", where chance alone stays below {PER_CENT}",
                told.window,
            )
            allowed = chance if rule.above is None else f", where {_per_cent(rule.above)} is allowed"
            return f"the estimators disagree{found}{allowed}. No estimate deserves trust until it is known why."
        case Kind.SILENT:
            last = if_series("cpcmon_last_record_timestamp_seconds", f" The newest was made {TIME}.", told.window)
            return f"no record came for {duration(rule.after_seconds)}.{last}"
        case Kind.DEGRADED_INPUT:
            of_model = (*told.target, "model")
            share = if_series("cpcmon_input_rejected_ratio", f" (refused: {PER_CENT})", of_model)
            return f"too many of the latest records are refused or look odd{share}. The accuracy cannot be said."


def _accuracy(rule: Rule, told: Told) -> str:
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


def _limit(rule: Rule, told: Told) -> str:
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
