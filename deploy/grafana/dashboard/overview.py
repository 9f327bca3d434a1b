"""Row 1: all models. The wall screen has nothing else."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import stat, table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from monitor.core.alerts import AUDITED_HIGH, AUDITED_LOW, HIGH, LOW, METRIC_HIGH, METRIC_LOW, AlertType, runbook
from monitor.core.estimate import WindowState
from monitor.rules import builtin_rules
from monitor.rules.rule import PrometheusRule

TITLE = "How are the models?"

# An estimate alone is no reason for green.
STATE_NAMES = {
    place: (one.replace("_", " "), p.BLUE if one is WindowState.OK else p.RED if one is WindowState.ERROR else p.GREY)
    for place, one in enumerate(q.STATES, start=1)
}
"""Texts and colours of the values of `queries.state`."""
_ALERT = len(q.STATES) + 1


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield models(height=6)
    yield firing(height=8)
    yield _counts()
    yield states(span=16, height=7)


def models(height: int) -> stat.Panel:
    """Return a tile for each model."""
    found = p.panel(
        stat.Panel(),
        "Worst window of each model",
        "The estimated accuracy of the window that is furthest below its threshold, or below its baseline if it has no"
        " threshold. Red: an alert on the model fires, on this window or another. Orange: none fires, but a window is below its"
        " threshold, fell or drifted. Green: neither. Grey: no estimate, with the reason.",
        p.now("alert", q.models("alert"), "{{model}}: {{segment}}"),
        p.now("below", q.models("below"), "{{model}}: {{segment}}"),
        p.now("fine", q.models("fine"), "{{model}}: {{segment}}"),
        p.now("unknown_alert", q.models("no estimate, alert"), "{{model}}: {{state}}"),
        p.now("unknown", q.models("no estimate"), "{{model}}: {{state}}"),
        unit=p.ACCURACY_UNIT, span=24, height=height, runbook="accuracy",
    )  # fmt: skip
    found.decimals(1).reduce_options(_last()).graph_mode(common.BigValueGraphMode.NONE)
    found.color_mode(common.BigValueColorMode.BACKGROUND).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    found.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(p.GREY))
    found.data_links(p.to_window(*p.OF_SERIES))
    for ref, colour in {"alert": p.RED, "below": p.ORANGE, "fine": p.GREEN}.items():
        found.override_by_query(ref, [p.colour(colour)])
    for ref, colour in {"unknown_alert": p.RED, "unknown": p.GREY}.items():
        nothing = p.value_names({1: ("no estimate", colour)})
        found.override_by_query(ref, [p.colour(colour), p.is_("mappings", [nothing])])
    return found


def firing(height: int) -> table.Panel:
    """Return the list of what fires."""
    match = f"on ({q.WINDOW}) group_left ()"
    rows = f"0 * {q.firing()}"
    found = p.panel(
        table.Panel().no_value("No alert fires"),
        "What fires",
        "Every firing alert, newest first: of Prometheus, and of daemons for which it has no rules. Estimate: of the window now."
        " Compared with: its threshold, else its baseline. Alerts on a daemon have no model.",
        p.column("since", f"1000 * ({q.firing_since()})"),
        p.column("value", f"{rows} + {match} {q.headline('')}"),
        p.column("compared", f"{rows} + {match} {q.compared()}"),
        unit="none", span=24, height=height, runbook="accuracy",
    )  # fmt: skip
    names = {
        "model": "Model", "segment": "Segment", "alert": "Alert", "severity": "Severity", "Value #since": "Since",
        "Value #value": "Estimate", "Value #compared": "Compared with", "runbook": "Runbook",
    }  # fmt: skip
    of_alert = ("job", "namespace", "model", "segment", "alert", "severity", "runbook")
    for step in p.as_table(names, hidden=("job", "namespace"), keys=of_alert):
        found.with_transformation(step)
    found.sort_by([common_builders.TableSortByFieldState().display_name("Since").desc(True)])
    found.data_links(p.to_window(*p.OF_ROW))
    found.override_by_name("Segment", [p.WIDE])
    found.override_by_name("Since", [p.is_("unit", "dateTimeFromNow")])
    for name in ("Estimate", "Compared with"):
        found.override_by_name(name, [p.is_("unit", p.ACCURACY_UNIT), p.is_("decimals", 1)])
    severities = {"critical": p.RED, "warning": p.ORANGE}
    found.override_by_name(
        "Severity",
        [
            p.is_("mappings", [p.texts({one: (one, colour) for one, colour in severities.items()})]),
            p.is_("custom.cellOptions", {"type": "color-text"}),
        ],
    )
    open_it = {"title": "Runbook", "url": "${runbooks:raw}${__value.text}", "targetBlank": True}
    files = p.texts({name: (file, "") for name, file in runbooks().items()})
    return found.override_by_name("Runbook", [p.is_("mappings", [files]), p.is_("links", [open_it])])


def runbooks() -> dict[str, str]:
    """Return the runbook of each value of the label `runbook` in `queries.firing`."""
    kinds = {str(one): runbook(one, upward=False) for one in AlertType}
    kinds |= dict.fromkeys((LOW, METRIC_LOW, AUDITED_LOW), runbook(AlertType.ACCURACY, upward=False))
    kinds |= dict.fromkeys((HIGH, METRIC_HIGH, AUDITED_HIGH), runbook(AlertType.ACCURACY, upward=True))
    rules = (*builtin_rules.DAEMON, *builtin_rules.LABELS, *builtin_rules.KAFKA, *_without_a_list())
    return kinds | {one.alert: one.runbook for one in rules} | {"CpcmonRulesOutdated": "rules_outdated.md"}


def _without_a_list() -> Iterator[PrometheusRule]:
    yield builtin_rules.down_rule("")
    yield builtin_rules.invalid_rule()
    yield builtin_rules.warming_rule()
    yield builtin_rules.merged_invalid_rule()
    yield builtin_rules.stale_rule("", "")
    yield builtin_rules.failing_rule("")
    yield builtin_rules.degraded_rule("")


def _counts() -> stat.Panel:
    def alerts(state: str) -> str:
        return f"count (max by ({q.WINDOW}, alert) ({q.series(f'cpcmon_alert_{state}')} == 1))"

    merged = f"cpcmon:estimate_records{{{q.JOB}}}"
    found = p.panel(
        stat.Panel(),
        "Alerts and windows without an estimate",
        "Over all models and segments, those of replicas once, without what is 0: alerts that fire, alerts whose threshold is"
        " crossed but not yet for long enough, alerts that cannot be evaluated now and keep their state, windows without an"
        " estimate, windows whose estimate fell or whose outputs drifted since their baseline, and windows whose own baseline"
        " nobody has confirmed.",
        p.now("firing", f"count ({q.firing()}) or vector(0)", "firing"),
        p.now("pending", alerts("pending"), "pending"),
        p.now("held", alerts("held"), "held"),
        p.now("invalid", f"count (max by ({q.WINDOW}) ({q.series('cpcmon_estimate_valid')}) == 0 unless on ({q.WINDOW}) {merged})", "windows without an estimate"),
        p.now("changed", f"count (max by ({q.WINDOW}) ({q.series('cpcmon_window_verdict', q.CHANGED)} == 1))", "fell or drifted"),
        p.now("unverified", f"count (min by ({q.WINDOW}) ({q.series('cpcmon_baseline_verified')}) == 0)", "unverified baselines"),
        unit="none", span=8, height=7, runbook="accuracy",
    )  # fmt: skip
    found.decimals(0).reduce_options(_last()).graph_mode(common.BigValueGraphMode.NONE)
    found.color_mode(common.BigValueColorMode.VALUE).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    found.thresholds(_zero_is_good(p.GREY))
    return found.override_by_query("firing", [p.is_("thresholds", _zero_is_good(p.RED).build())])


def _zero_is_good(otherwise: str) -> builders.ThresholdsConfig:
    steps = [dashboard.Threshold(None, p.GREEN), dashboard.Threshold(1.0, otherwise)]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def states(span: int, height: int) -> Builder[dashboard.Panel]:
    """Return the state of each model over time."""
    # Only alerts that fire have series in Prometheus: those of the daemons, one for each alert and window, would take long.
    named = 'model!=""'
    alerts = f"{_ALERT} * max by (model) ({q.alerts(named)})"
    found = p.panel(
        p.states_over_time(),
        "State of each model",
        "Whether an alert on the model fired in Prometheus, else the state of the whole model over time. Blue: it had an"
        " estimate, which may be good or bad. For a model that replicas share, the best of their states; for several jobs with a"
        " model of this name, the last in the list of states.",
        p.over_time("state", f"{alerts} or {q.state('model', q.ALL)}", "{{model}}"),
        unit="none", span=span, height=height, runbook="estimate_invalid",
    )  # fmt: skip
    found.data_links(p.to_window(*p.MODEL_OF_SERIES))
    return found.mappings([p.value_names(STATE_NAMES | {_ALERT: ("alert", p.RED)})])


def _last() -> common_builders.ReduceDataOptions:
    return common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
