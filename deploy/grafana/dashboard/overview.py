"""Row 1: all models."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from monitor.core.baselines.comparison import Verdict
from monitor.core.estimate import WindowState

TITLE = "How are the models?"

STATE_NAMES = {
    place: (one.replace("_", " "), p.GREEN if one is WindowState.OK else p.RED if one is WindowState.ERROR else p.GREY)
    for place, one in enumerate(q.STATES, start=1)
}
"""Texts and colours of the values of `queries.state`."""


_CHANGED = f'verdict=~"{Verdict.FELL}|{Verdict.DRIFTED}"'


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _models()
    yield _firing()
    yield _states()


def _models() -> stat.Panel:
    found = p.panel(
        stat.Panel(),
        "Estimated accuracy of each model",
        "The latest estimate for all records of each model, by the chosen estimator, coloured by the model's threshold."
        " Red: the upper bound is below it. Orange: the estimate is below it, but its interval reaches above. Green: not"
        " below. Blue: the model has no threshold. Grey: no estimate, with the reason.",
        p.now("below", q.models("below"), "{{model}}: below threshold"),
        p.now("perhaps", q.models("perhaps below"), "{{model}}: perhaps below threshold"),
        p.now("fine", q.models("not below"), "{{model}}: ok"),
        p.now("free", q.models("no threshold"), "{{model}}: ok, no threshold"),
        p.now("unknown", q.models("no estimate"), "{{model}}: {{state}}"),
        unit=p.ACCURACY_UNIT, span=24, height=6, runbook="accuracy",
    )  # fmt: skip
    found.min(0).max(1).decimals(1).reduce_options(_last()).graph_mode(common.BigValueGraphMode.NONE)
    found.color_mode(common.BigValueColorMode.BACKGROUND).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    found.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(p.GREY))
    for ref, colour in {"below": p.RED, "perhaps": p.ORANGE, "fine": p.GREEN, "free": p.BLUE}.items():
        found.override_by_query(ref, [p.colour(colour)])
    unknown = p.value_names({1: ("no estimate", p.GREY)})
    return found.override_by_query("unknown", [p.is_("mappings", [unknown])])


def _firing() -> stat.Panel:
    found = p.panel(
        stat.Panel(),
        "Alerts and windows without an estimate",
        "Over all models and segments: alerts that fire, alerts whose threshold is crossed but not yet for long enough,"
        " alerts that cannot be evaluated now and keep their state, windows without an estimate, windows whose estimate fell"
        " or whose outputs drifted since their baseline, and windows whose own baseline nobody has confirmed.",
        p.now("firing", f"sum ({q.series('cpcmon_alert_firing')})", "firing"),
        p.now("pending", f"sum ({q.series('cpcmon_alert_pending')})", "pending"),
        p.now("held", f"sum ({q.series('cpcmon_alert_held')})", "held"),
        p.now("invalid", f"count ({q.series('cpcmon_estimate_valid')}) - sum ({q.series('cpcmon_estimate_valid')})", "windows without an estimate"),
        p.now("changed", f"sum ({q.series('cpcmon_window_verdict', _CHANGED)}) or vector(0)", "fell or drifted"),
        p.now("unverified", f"count ({q.series('cpcmon_baseline_verified')} == 0) or vector(0)", "unverified baselines"),
        unit="none", span=8, height=7, runbook="accuracy",
    )  # fmt: skip
    found.decimals(0).reduce_options(_last()).graph_mode(common.BigValueGraphMode.NONE)
    found.color_mode(common.BigValueColorMode.VALUE).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    found.thresholds(_zero_is_good(p.GREY))
    return found.override_by_query("firing", [p.is_("thresholds", _zero_is_good(p.RED).build())])


def _zero_is_good(otherwise: str) -> builders.ThresholdsConfig:
    steps = [dashboard.Threshold(None, p.GREEN), dashboard.Threshold(1.0, otherwise)]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _states() -> Builder[dashboard.Panel]:
    found = p.panel(
        p.states_over_time(),
        "State of each model",
        "The state of the segment all of each model over time. For a model that replicas share, the best of their states;"
        " for several jobs with a model of this name, the last in the list of states.",
        p.over_time("state", q.state("model", q.ALL), "{{model}}"),
        unit="none", span=16, height=7, runbook="estimate_invalid",
    )  # fmt: skip
    return found.mappings([p.value_names(STATE_NAMES)])


def _last() -> common_builders.ReduceDataOptions:
    return common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
