"""The variables above the panels, and the annotations."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from monitor.core.estimate import CONSENSUS, HEADLINE

Variable = Builder[dashboard.VariableModel]


def targets() -> list[Variable]:
    """Return the variables that select daemons, and the addresses in links."""
    return [
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _targets("job", "Job", "cpcmon_build_info"),
        _targets("instance", "Instance", f"cpcmon_build_info{{{q.JOB}}}"),
        *_addresses(),
    ]


def choices() -> list[Variable]:
    """Return the variables that select one window and estimator."""
    return [
        _choice("model", "Model", q.series("cpcmon_window_records")),
        _choice("segment", "Segment", q.series("cpcmon_window_records", q.MODEL), "all"),
        _estimators(),
    ]


def _targets(name: str, label: str, series: str) -> builders.QueryVariable:
    """Return a choice of targets, initially all."""
    everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
    found = _query(name, label, f"label_values({series}, {name})").multi(True).include_all(True).all_value(".+")
    return found.current(everything)


def _choice(name: str, label: str, series: str, first: str = "") -> builders.QueryVariable:
    """Return a choice of one."""
    found = _query(name, label, f"label_values({series}, {name})").multi(False).include_all(False)
    return found.current(dashboard.VariableOption(selected=True, text=first, value=first)) if first else found


def _estimators() -> builders.QueryVariable:
    """Return a choice of the estimators that have values for the window, the main number first."""
    found = f"count by (estimator) ({q.series('cpcmon_estimated_accuracy_ratio', q.MODEL, q.SEGMENT)})"
    first, second = (
        f'label_replace(vector({place}), "estimator", "{one}", "", "")'
        for place, one in ((3, HEADLINE), (2, CONSENSUS))
    )
    ranked = f"sort_desc(0 * {found} + on (estimator) ({first} or {second} or {found} ^ 0))"
    listed = _query("estimator", "Estimator", f"query_result({ranked})").multi(False).include_all(False)
    listed.regex('/estimator="([^"]+)"/').sort(dashboard.VariableSort.DISABLED)
    return listed.current(dashboard.VariableOption(selected=True, text=HEADLINE, value=HEADLINE))


def _addresses() -> Iterator[builders.QueryVariable]:
    """Yield the addresses of `links` in the configuration. Where one is not set, its links lead to the dashboard."""
    yield _address("runbooks", "runbooks", "/", "/d/cpcmon?runbook=")
    yield _address("page", "page", "/model?name=", "/d/cpcmon?var-model=")
    # The name of the parameter depends on where the link leads.
    yield _address("page_segment", "page", "&segment=", "&var-segment=", whole=False)


def _address(name: str, label: str, end: str, otherwise: str, *, whole: bool = True) -> builders.QueryVariable:
    info = q.series("cpcmon_links_info", f'{label}!=""')
    known = f'label_replace({info}, "end", "{end}", "", "")'
    parts = f'"{label}", "end"' if whole else '"end"'
    there = f'max by (to) (label_join({known}, "to", "", {parts}))'
    here = f'label_replace(vector(1), "to", "{otherwise}", "", "")'
    found = _query(name, f"Address: {name}", f"query_result({there} or on () {here})").regex('/to="([^"]+)"/')
    return found.multi(False).include_all(False).hide(dashboard.VariableHide.HIDE_VARIABLE)


def _query(name: str, label: str, wanted: str) -> builders.QueryVariable:
    found = builders.QueryVariable(name).label(label).datasource(p.SOURCE).definition(wanted)
    # Also on a change of the time range, or new segments could not be selected.
    found.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    return found.query({"query": wanted, "refId": name})


def annotations() -> Iterator[builders.AnnotationQuery]:
    """Yield the alerts of the selected model and of the daemon as regions, and changes of what an estimate depends on."""
    alerts = _annotation("Firing alerts", p.RED, q.alerts('model=~"$model|"'))
    yield alerts.title_format("{{alertname}}").text_format("{{model}} {{segment}}").tag_keys("severity,model,segment")
    target = "job, instance"
    of_model = q.series("cpcmon_reference_info", q.MODEL)
    version = _annotation("New version", p.BLUE, _changed(q.series("cpcmon_build_info"), target, "version"))
    yield version.title_format("cpcmon {{version}}").text_format("{{instance}}")
    reference = _annotation("New reference", p.BLUE, _changed(of_model, f"{target}, model", "version, fingerprint"))
    yield reference.title_format("Reference of {{model}}").text_format("version {{version}}, {{fingerprint}}")
    configuration = _annotation("New configuration", p.GREY, _changed(q.series("cpcmon_config_info"), target, "digest"))
    yield configuration.title_format("New configuration").text_format("{{instance}}")


def _changed(info: str, owner: str, value: str) -> str:
    """Return what is new for five minutes: absent in the quarter of an hour before, in which its owner had another one."""
    before = f"last_over_time({info}[15m] offset 5m)"
    return f"max by ({owner}, {value}) ({info}) unless on ({owner}, {value}) {before} and on ({owner}) {before}"


def _annotation(name: str, colour: str, expression: str) -> builders.AnnotationQuery:
    found = builders.AnnotationQuery().name(name).datasource(p.SOURCE).enable(True).icon_color(colour)
    return found.expr(expression).step("60s").tag_keys("instance,model")
