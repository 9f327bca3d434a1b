"""Recording rules that add the parts of all replicas into one estimate for each model and segment.

A part is a sum over the records that one replica holds, so the sum over replicas does not depend on which of them holds
which partition. `docs/scaling.md` says for which estimators that is exact.
"""

from monitor.core.estimators.consensus import CONSENSUS, VOICES
from monitor.sinks.labels import quoted
from monitor.sinks.prometheus_rule import BRIDGE, RecordingRule

MODEL = "job, namespace, model"
WINDOW = f"{MODEL}, segment"
"""What a merged window is told apart by. Where Prometheus knows no namespaces, the label is empty on both sides."""
_ESTIMATOR = f"{WINDOW}, estimator"

RATIO = "cpcmon:estimated_accuracy_ratio"
LOWER = "cpcmon:estimated_accuracy_lower_ratio"
UPPER = "cpcmon:estimated_accuracy_upper_ratio"
DISAGREEMENT = "cpcmon:estimator_disagreement_ratio"
WINDOW_RECORDS = "cpcmon:window_records"
ESTIMATE_RECORDS = "cpcmon:estimate_records"
"""There when the merged estimate may be said, and not otherwise."""

ALL_DOWN = f"(min_over_time((max by (job, namespace) (up))[{BRIDGE}:]) == 0)"
"""Jobs of which lately nobody could be scraped: what replicas said together has no instance, so no inhibition finds it."""

_VOICES = f"{RATIO}{{estimator=~{quoted('|'.join(VOICES))}%s}}"


def recording_rules(job: str | None = None) -> list[RecordingRule]:
    """Return the rules, each after those that it needs; `job` is a regular expression, None for whatever is scraped."""
    chosen = "" if job is None else f"job=~{quoted(job)}"
    only = f"{{{chosen}}}" if chosen else ""
    more = f",{chosen}" if chosen else ""
    counts = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_count{only})"
    voices = _VOICES % more
    all_speak = f"and on ({WINDOW}) count by ({WINDOW}) ({voices}) == {len(VOICES)}"
    return [
        RecordingRule(WINDOW_RECORDS, f"sum by ({WINDOW}) (cpcmon_window_records{only})"),
        RecordingRule(
            ESTIMATE_RECORDS,
            f"max by ({WINDOW}) ({counts})"
            f" >= on ({MODEL}) group_left () max by ({MODEL}) (cpcmon_window_minimum_records{only})"
            f" and on ({WINDOW}) max by ({WINDOW}) (cpcmon_window_fresh{only}) == 1",
        ),
        RecordingRule(
            RATIO,
            f'clamp(sum by ({_ESTIMATOR}) (cpcmon_estimate_sum{{estimator!="{CONSENSUS}"{more}}}) / {counts}, 0, 1)'
            f" and on ({WINDOW}) {ESTIMATE_RECORDS}",
        ),
        # Not the mean of the replicas' own: that of the merged voices, by the interpolation that the daemon uses too.
        RecordingRule(RATIO, f"quantile by ({WINDOW}) (0.25, {voices}) {all_speak}", {"estimator": CONSENSUS}),
        RecordingRule(DISAGREEMENT, f"max by ({WINDOW}) ({voices}) - min by ({WINDOW}) ({voices}) {all_speak}"),
        RecordingRule(LOWER, _bound("lower", "<", only, counts)),
        RecordingRule(UPPER, _bound("upper", ">", only, counts)),
    ]


def _bound(side: str, beyond: str, only: str, counts: str) -> str:
    """Return the mean of the replicas' bounds by records, or the estimate itself where that lies beyond it."""
    mean = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_{side}_sum{only}) / {counts}"
    estimate = f"{RATIO}{only}"
    return f"{mean} {beyond} {estimate} or ({estimate} and {mean})"
