"""The variables above the panels, and the annotations."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q


def variables(runbooks: str) -> list[Builder[dashboard.VariableModel]]:
    """Return the variables in order."""
    return [
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _targets("job", "Job", "cpcmon_build_info"),
        _targets("instance", "Instance", f"cpcmon_build_info{{{q.JOB}}}"),
        _choice("model", "Model", q.series("cpcmon_window_records")),
        _choice("segment", "Segment", q.series("cpcmon_window_records", q.MODEL), "all"),
        _choice("estimator", "Estimator", q.series("cpcmon_estimate_records"), "adaptive"),
        builders.ConstantVariable("runbooks").label("Address of the runbooks").value(runbooks),
    ]


def _targets(name: str, label: str, series: str) -> builders.QueryVariable:
    """Return a choice of targets, initially all."""
    everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
    found = _query(name, label, series).multi(True).include_all(True).all_value(".+")
    return found.current(everything)


def _choice(name: str, label: str, series: str, first: str = "") -> builders.QueryVariable:
    """Return a choice of one."""
    found = _query(name, label, series).multi(False).include_all(False)
    return found.current(dashboard.VariableOption(selected=True, text=first, value=first)) if first else found


def _query(name: str, label: str, series: str) -> builders.QueryVariable:
    wanted = f"label_values({series}, {name})"
    found = builders.QueryVariable(name).label(label).datasource(p.SOURCE).definition(wanted)
    # Also on a change of the time range, or new segments could not be selected.
    found.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    return found.query({"query": wanted, "refId": name})


def firing_alerts() -> builders.AnnotationQuery:
    """Return the alerts of the selected model and of the daemon, as time regions."""
    # The watchdog always fires. CpcmonDown of an unknown target has neither job nor model.
    matchers = 'alertname=~"Cpcmon.+",alertname!="CpcmonWatchdog",alertstate="firing",job=~"$job|",model=~"$model|"'
    found = builders.AnnotationQuery().name("Firing alerts").datasource(p.SOURCE).enable(True).icon_color(p.RED)
    found.expr(f"ALERTS{{{matchers}}}").step("60s")
    return found.title_format("{{alertname}}").text_format("{{model}} {{segment}}").tag_keys("severity,model,segment")
