"""Alerts on the daemon itself and on members of consumer groups; the same for every configuration."""

from monitor.core.alerts import Severity
from monitor.core.label_values import quoted
from monitor.rules.rule import PrometheusRule, lately

_MINUTES, _HOURS = 60.0, 3600.0
_MODEL = "{{ $labels.model }}"


def down_rule(job: str) -> PrometheusRule:
    """Return the alert on a daemon that Prometheus cannot scrape."""
    up = f"up{{job=~{quoted(job)}}}"
    return PrometheusRule(
        "CpcmonDown",
        # Of a target that is gone, such as a pod that fits on no node, the labels are those it had: without them nothing
        # inhibits its alerts, and they would be called resolved.
        f"{up} == 0 or absent({up}) or (last_over_time({up}[1h]) and on () absent({up}))",
        Severity.CRITICAL,
        "cpcmon cannot be scraped.",
        "cpcmon{{ with $labels.instance }} at {{ . }}{{ end }} cannot be scraped: nothing is known of any model.",
        "down.md",
        5 * _MINUTES,
    )


def risen(counter: str) -> str:
    """Return what a counter that is kept in the state has risen by within an hour, a break before it included.

    What damages a state often keeps the machine down for longer than the hour, and `increase` knows nothing of before a
    break. Nor does the counter always rise: an empty state counts from 1 again.
    """
    before = f"last_over_time({counter}[1w] offset 1h)"
    return f"increase({counter}[1h]) > 0 or ({lately(counter)} > 0 and {lately(counter)} != {before})"


WATCHDOG = PrometheusRule(
    "CpcmonWatchdog",
    "vector(1)",
    Severity.INFO,
    "Alerts are delivered.",
    "This alert always fires. Let somebody outside notice when it stops coming.",
    "watchdog.md",
)

FIXED = (
    PrometheusRule(
        # A night or a small site cannot make it so, and it does not pass by itself: more than information.
        "CpcmonVersionMismatch",
        lately('cpcmon_window_state{segment="all",state="version_mismatch"}') + " == 1",
        Severity.WARNING,
        "Nobody watches a model since it was updated.",
        f"{_MODEL}: most records are of another version than the reference. Its accuracy cannot be said, and no alert on"
        " it can fire, until a reference for the new version is there.",
        "version_mismatch.md",
        30 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonReferenceMissing",
        lately('cpcmon_window_state{segment="all",state="no_reference"}') + " == 1",
        Severity.WARNING,
        "A model has no reference.",
        f"{_MODEL}: there is nothing to compare its outputs with. Its accuracy cannot be said, and no alert on it can fire,"
        " until a reference is named in the configuration.",
        "reference_missing.md",
        30 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonInputOdd",
        # Where they look so odd that nothing is said, another alert tells of it.
        f"({lately('cpcmon_input_one_hot')} == 1 or {lately('cpcmon_input_constant')} == 1)"
        f" unless {lately('cpcmon_input_degraded')} == 1",
        Severity.WARNING,
        "The outputs of a model do not look like probabilities.",
        f"{_MODEL}: the latest outputs are all ones and zeros, or all the same. No estimate from them deserves trust.",
        "input_odd.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonSegmentsDropped",
        "increase(cpcmon_records_unstored_segment_total[1h]) > 0",
        Severity.WARNING,
        "Some segments of a model are not watched.",
        f"{_MODEL}: there are more segments than the limit; the newest are counted in the whole only.",
        "segments_dropped.md",
    ),
    PrometheusRule(
        "CpcmonSourceNotReady",
        lately("cpcmon_source_ready") + " == 0",
        Severity.WARNING,
        "A source of records cannot be read.",
        "{{ $labels.source }}: nothing can be read. /-/ready and the log say what it waits for.",
        "source_not_ready.md",
        10 * _MINUTES,
    ),
    PrometheusRule(
        # Of topics another alert tells, with their own offsets; here they have no bytes.
        "CpcmonSourceLagGrowing",
        f"time() - {lately('cpcmon_source_oldest_unread_timestamp_seconds')} > 600"
        " and deriv(cpcmon_source_lag_bytes[15m]) > 0",
        Severity.WARNING,
        "More is written to a source than is read.",
        "{{ $labels.source }}: something has been unread for {{ $value | humanizeDuration }}, and there is more every minute."
        " Estimates will soon be of the past.",
        "source_lag.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonCatchingUp",
        lately("cpcmon_catching_up") + " == 1",
        Severity.WARNING,
        "cpcmon is far behind its sources.",
        "For an hour so much has been unread that nothing is said of any model, and alerts stay as they were.",
        "catching_up.md",
        1 * _HOURS,
    ),
    PrometheusRule(
        "CpcmonStatePaused",
        lately("cpcmon_paused") + " == 1",
        Severity.CRITICAL,
        "The state of cpcmon cannot be written.",
        "The disk is full or read-only. Nothing is taken in until it can be written again.",
        "state_paused.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonStateRecovered",
        f"sum without (from) ({risen('cpcmon_state_recovered_total')}) or {risen('cpcmon_state_damaged_chunks_total')}",
        Severity.WARNING,
        "The state of cpcmon was damaged.",
        "A backup, an empty state, or the state without its damaged parts is in use. The log says which.",
        "state_recovered.md",
    ),
    PrometheusRule(
        "CpcmonReloadFailed",
        lately("cpcmon_config_last_reload_successful") + " == 0",
        Severity.WARNING,
        "The configuration could not be reloaded.",
        "The configuration from before is still in use. `cpcmon check-config` says what is wrong with the new one.",
        "reload_failed.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebConfigFailed",
        lately("cpcmon_web_config_last_reload_successful") + " == 0",
        Severity.WARNING,
        "The web configuration of cpcmon cannot be read.",
        "The certificates and passwords from before are still in use, also when they run out or were withdrawn."
        " The log says what is wrong.",
        "web_config.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebhookFailing",
        f"{lately('cpcmon_webhook_waiting')} > 0 or increase(cpcmon_webhook_failures_total[1h]) > 0"
        " or increase(cpcmon_webhook_dropped_total[1h]) > 0 or increase(cpcmon_webhook_redirects_total[1h]) > 0",
        Severity.WARNING,
        "The webhook of cpcmon does not deliver.",
        "Messages of alerts wait, or were given up. Whoever is told by the webhook alone does not know of them.",
        "webhook.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonTelemetryFailing",
        lately("cpcmon_telemetry_errors") + " > 0",
        Severity.WARNING,
        "A part of the metrics page of cpcmon is missing.",
        "Series about cpcmon itself are missing, and the alerts on them cannot fire.",
        "telemetry_failing.md",
        5 * _MINUTES,
    ),
)
"""Those that are the same for every configuration."""


_KAFKA_MINUTES = 60.0
_SOURCE = "{{ $labels.source }}{{ with $labels.instance }} at {{ . }}{{ end }}"

KAFKA = (
    PrometheusRule(
        "CpcmonKafkaLagGrowing",
        f"{lately('cpcmon_kafka_lag_seconds')} > 60 and deriv(cpcmon_kafka_lag_records[15m]) > 0",
        Severity.WARNING,
        "More is written to a topic than is read.",
        f"{_SOURCE}: {{{{ $value | humanizeDuration }}}} behind, and further every minute. Estimates will soon be of the"
        " past.",
        "kafka_lag.md",
        15 * _KAFKA_MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaRecordsLost",
        risen("cpcmon_kafka_records_lost_total"),
        Severity.WARNING,
        "Records were gone before they could be read.",
        f"{_SOURCE}: retention deleted messages, or a batch could not be read. Windows lack them until they have rolled"
        " over.",
        "kafka_records_lost.md",
    ),
    PrometheusRule(
        "CpcmonKafkaStalled",
        f"{lately('cpcmon_kafka_lag_records')} > 0 and ignoring (event)"
        ' increase(cpcmon_source_events_total{event="messages_read"}[15m]) == 0'
        " or increase(cpcmon_kafka_stalls_total[1h]) > 2",
        Severity.WARNING,
        "Partitions do not move although there is more to read.",
        f"{_SOURCE}: nothing is read, or only after the connection was made anew again and again.",
        "kafka_stalled.md",
        10 * _KAFKA_MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaNoPartitions",
        lately("cpcmon_kafka_assigned_partitions") + " == 0",
        Severity.WARNING,
        "A replica reads nothing.",
        f"{_SOURCE}: has no partition. It is not in the group, or there are more replicas than partitions.",
        "kafka_no_partitions.md",
        15 * _KAFKA_MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaPartitionsUnassigned",
        f"max by (job, namespace, source) ({lately('cpcmon_kafka_unassigned_partitions')}) > 0",
        Severity.WARNING,
        "Partitions are read by no replica.",
        f"{_SOURCE}: {{{{ $value }}}} partitions are assigned to no member of the group. Estimates lack their records.",
        "kafka_unassigned.md",
        5 * _KAFKA_MINUTES,
    ),
)
"""For configurations with a source of type `kafka`."""
