"""What people read when an alert of the generic rules fires: what the configuration would say is asked of the daemon."""

from monitor.core.alert_rules import Kind
from monitor.sinks.alert_words import ALL_REPLICAS, IF_SUSPICIOUS, ONE_DAEMON, PER_CENT, TIME, TO_DO, if_series

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


def _accuracy(side: str, to_do: str) -> str:
    value = _of_its_estimator(ONE_DAEMON.ratio, f" {PER_CENT}", " unknown at the moment")
    lower = _of_its_estimator(ONE_DAEMON.lower, f", from {PER_CENT}")
    upper = _of_its_estimator(ONE_DAEMON.upper, f" to {PER_CENT}")
    estimator = if_series(_THRESHOLD, ", by {{ . | first | label `estimator` }}", _ALERT)
    limit = if_series(_THRESHOLD, f" {PER_CENT}", _ALERT, otherwise=" its threshold")
    return (
        f"{_WHERE}estimated accuracy{value}{lower}{upper}{estimator}. {{{{ $labels.alert }}}} stayed {side}{limit} for as"
        f" long as is configured.{_SINCE}{_HELD} {to_do}"
    )


ACCURACY_LOW = _accuracy("under", TO_DO[Kind.ACCURACY])
ACCURACY_HIGH = _accuracy("over", IF_SUSPICIOUS)
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
    f"{_HOLD}. {TO_DO[Kind.ACCURACY]}"
)
DISAGREEMENT = (
    f"{_WHERE}the estimators disagree{if_series(ONE_DAEMON.disagreement, f' by {PER_CENT}', _WINDOW)}"
    f". No estimate deserves trust until it is known why.{_SINCE}{_HELD} {TO_DO[Kind.DISAGREEMENT]}"
)
SILENT = (
    f"{_WHERE}no record came for longer than is configured."
    f"{if_series('cpcmon_last_record_timestamp_seconds', f' The newest was made {TIME}.', _WINDOW)}{_SINCE}"
    f" {TO_DO[Kind.SILENT]}"
)
REFUSED = (
    "{{ $labels.model }}: too many of the latest records are refused or look odd"
    f"{if_series('cpcmon_input_rejected_ratio', f' (refused: {PER_CENT})', ('instance', 'model'))}. The accuracy cannot be"
    f" said. {TO_DO[Kind.DEGRADED_INPUT]}"
)
