"""Row 5: the daemon itself."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import bargauge, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q

TITLE = "The daemon"

_STATE_NAMES = {
    1: ("cannot be scraped", p.RED),
    2: ("paused: the state cannot be written", p.RED),
    3: ("catching up", p.ORANGE),
    4: ("not ready", p.ORANGE),
    5: ("configuration on disk not in use", p.ORANGE),
    6: ("ready", p.GREEN),
}


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield state()
    yield _records()
    yield p.panel(
        p.lines().min(0).no_value("No increase in this time"),
        "Records rejected, by reason",
        "Rejected records per second, by reason (docs/records.md), without reasons that did not occur.",
        p.over_time("rejected", q.rate_if_any("cpcmon_records_rejected_total", "source, reason"), "{{source}}: {{reason}}"),
        unit="cps", span=12, runbook="degraded_input",
    )  # fmt: skip
    yield _unread()
    yield _waiting()
    yield _evaluation_time()
    yield _evaluation_age()


def state(height: int = 5) -> Builder[dashboard.Panel]:
    """Return the state of each daemon over time."""
    failed = q.series("cpcmon_config_last_reload_successful")
    # With all jobs selected, `up` has those of other programs too.
    known = f"last_over_time({q.series('cpcmon_build_info')}[$__range])"
    found = p.panel(
        p.states_over_time(),
        "State of the daemon",
        "Each daemon: ready, or its most serious problem.",
        p.over_time(
            "state",
            f"1 + ({q.series('up')} == 0 and on (job, instance) {known})"
            f" or on (job, instance) 2 * ({q.series('cpcmon_paused')} == 1)"
            f" or on (job, instance) 3 * ({q.series('cpcmon_catching_up')} == 1)"
            f" or on (job, instance) 4 + ({q.series('cpcmon_ready')} == 0)"
            f" or on (job, instance) 5 + ({failed} == 0)"
            f" or on (job, instance) 6 * {q.series('cpcmon_ready')}",
            "{{instance}}",
        ),
        unit="none", span=24, height=height, runbook="down",
    )  # fmt: skip
    return found.mappings([p.value_names(_STATE_NAMES)])


def _records() -> timeseries.Panel:
    return p.panel(
        p.lines().min(0),
        "Records ingested",
        "Records per second that entered windows, by source and model.",
        p.over_time("records", q.rate("cpcmon_records_total", "source, model"), "{{source}}: {{model}}"),
        unit="cps", span=12, runbook="silent",
    )  # fmt: skip


def _unread() -> timeseries.Panel:
    found = p.panel(
        p.lines().min(0),
        "Backlog",
        "Unread bytes in directories, and files or partitions with unread data.",
        p.over_time("bytes", f"max by (instance, source) ({q.series('cpcmon_source_lag_bytes')})", "{{source}}: bytes"),
        p.over_time("files", f"max by (instance, source) ({q.series('cpcmon_source_lag_files')})", "{{source}}: files"),
        unit="bytes", span=12, runbook="catching_up",
    )  # fmt: skip
    return found.override_by_query("files", [p.is_("unit", "none"), p.is_("custom.axisPlacement", "right")])


def _waiting() -> timeseries.Panel:
    oldest = q.series("cpcmon_source_oldest_unread_timestamp_seconds")
    # The time is absent when all is read. A source that cannot be read is shown elsewhere.
    nothing = f"0 * {q.series('cpcmon_source_ready')}"
    return p.panel(
        p.lines().min(0),
        "Lag",
        "Age of the oldest unread data of each source. 0 when all is read.",
        p.over_time(
            "lag", f"max by (source) ((timestamp({oldest}) - {oldest}) or on (job, instance, source) {nothing})", "{{source}}"
        ),
        unit="s", span=12, runbook="catching_up",
    )  # fmt: skip


def _evaluation_time() -> bargauge.Panel:
    def of(part: str) -> str:
        return f"increase({q.series(f'cpcmon_evaluation_duration_seconds_{part}')}[$__range])"

    found = p.panel(
        bargauge.Panel(),
        "Evaluation time",
        "Duration of the evaluations of each model in the time range: 99th percentile and mean.",
        p.now("most", f"histogram_quantile(0.99, sum by (model, le) ({of('bucket')}))", "{{model}}: 99 %"),
        p.now("mean", f"sum by (model) ({of('sum')}) / sum by (model) ({of('count')})", "{{model}}: mean"),
        unit="s", span=12, runbook="evaluation_stale",
    )  # fmt: skip
    found.min(0).display_mode(common.BarGaugeDisplayMode.BASIC).orientation(common.VizOrientation.HORIZONTAL)
    found.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return found.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(p.BLUE))


def _evaluation_age() -> timeseries.Panel:
    return p.panel(
        p.lines().min(0),
        "Age of the last evaluation",
        "The age of all series of a model. It rises to the period of the schedule and falls to 0. For several daemons, the"
        " oldest.",
        p.over_time("age", q.age("cpcmon_last_evaluation_timestamp_seconds", "model"), "{{model}}"),
        unit="s", span=12, runbook="evaluation_stale",
    )  # fmt: skip
