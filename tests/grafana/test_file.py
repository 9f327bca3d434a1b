"""The committed dashboard is up to date, and follows conventions."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from deploy.grafana.dashboard import __main__ as command
from deploy.grafana.dashboard.assembly import texts
from deploy.grafana.dashboard.overview import runbooks
from monitor.config.config import Config, Storage
from tests.grafana.dashboard import (
    DASHBOARD,
    WALL,
    Json,
    Query,
    all_panels,
    annotation_queries,
    collapsed_panels,
    open_panels,
    queries,
    variable_queries,
    with_values,
)
from tests.rules.rule_tests import Rules
from tests.sinks.golden import page
from tests.sinks.pages import families

_ROOT = Path(__file__).resolve().parents[2]
_QUERIES = list(queries(*all_panels()))
_SERIES = families(page().encode())
_COUNTERS = {name for name, (kind, _) in _SERIES.items() if kind == "counter"}
_RECORDED = set(re.findall(r"record: (\S+)", (_ROOT / "deploy/prometheus/cpcmon.rules.yml").read_text()))


def test_the_files_are_up_to_date() -> None:
    """After an intended change: `python -m deploy.grafana.dashboard`."""
    for name, text in texts().items():
        assert (_ROOT / "deploy" / name).read_text("utf-8").splitlines() == text.splitlines()


def test_the_command_writes_both_files_and_copies_for_kustomize_and_the_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["dashboard", "--output", str(tmp_path)])
    assert command.main() == 0
    written = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.json")}
    folders = ("grafana", "kubernetes/base/dashboards", "helm/cpcmon/files/dashboards")
    assert written == {f"{folder}/{name}.json" for folder in folders for name in ("cpcmon", "cpcmon-wall")}


@pytest.mark.parametrize(("dashboard", "uid"), [(DASHBOARD, "cpcmon"), (WALL, "cpcmon-wall")])
def test_it_can_be_provisioned(dashboard: Json, uid: str) -> None:
    """It has no id, a fixed uid, and no placeholders of an import."""
    assert dashboard["id"] is None
    assert dashboard["uid"] == uid
    assert 36 <= dashboard["schemaVersion"] <= 39
    assert (dashboard["editable"], dashboard["graphTooltip"], dashboard["refresh"]) == (False, 1, "1m")
    assert not {"__inputs", "__requires"} & dashboard.keys()


def test_the_wall_screen_shows_panels_of_the_dashboard_without_choices_of_a_window() -> None:
    """Its queries are tested with theirs."""
    expected = {(one.name, one.expression) for one in _QUERIES}
    assert {(one.name, one.expression) for one in queries(*WALL["panels"])} <= expected
    assert not {"model", "segment", "estimator"} & {one["name"] for one in WALL["templating"]["list"]}
    assert max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in WALL["panels"]) <= 27, (
        "more than a screen of 1080 lines"
    )


def test_it_has_the_variables_in_their_order() -> None:
    found: dict[str, Json] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    addresses = ["runbooks", "page", "page_segment"]
    assert list(found) == ["datasource", "job", "instance", *addresses, "model", "segment", "estimator"]
    assert [name for name, one in found.items() if one.get("hide") == 2] == addresses
    assert (found["datasource"]["label"], found["datasource"]["query"]) == ("Data source", "prometheus")
    for name in ("job", "instance"):
        assert (found[name]["multi"], found[name]["includeAll"], found[name]["allValue"]) == (True, True, ".+")
    for name in ("model", "segment", "estimator"):
        assert not found[name]["multi"]
        assert not found[name]["includeAll"]


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_every_panel_has_a_description_a_unit_and_a_runbook(panel: Json) -> None:
    assert panel["title"]
    assert re.search(r"\w.{40,}\.$", panel["description"], re.DOTALL), "a sentence or more"
    assert panel["fieldConfig"]["defaults"]["unit"]
    (link,) = panel["links"]
    runbook = re.fullmatch(r"\$\{runbooks:raw\}(\w+\.md)", link["url"])
    assert runbook is not None
    assert (_ROOT / "docs/runbooks" / runbook[1]).is_file()


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_every_panel_uses_the_selected_data_source_and_unique_reference_ids(panel: Json) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert all(one["datasource"] == chosen for one in panel["targets"])
    names = [one["refId"] for one in panel["targets"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_axes_of_ratios_are_free_above_and_lines_have_no_points(panel: Json) -> None:
    """From 0 to 100%, a fall from 89% to 82% is flat."""
    drawn = panel["fieldConfig"]["defaults"]
    if drawn["unit"] == "percentunit":
        assert "max" not in drawn
    else:
        assert "_ratio{" not in "".join(one.expression for one in queries(panel)) or panel["type"] in {
            "table",
            "status-history",
        }
    if panel["type"] == "timeseries":
        assert drawn["custom"]["showPoints"] == "never"


@pytest.mark.parametrize("panel", all_panels() + WALL["panels"], ids=lambda one: one["title"])
def test_tables_are_as_wide_as_the_screen(panel: Json) -> None:
    assert panel["type"] != "table" or panel["gridPos"]["w"] == 24


def test_every_tile_and_row_about_a_window_links_to_it_here_and_at_its_daemon() -> None:
    """Of panels that show several models or segments, where the columns and labels in the links exist."""
    seen = 0
    for panel in (*all_panels(), *WALL["panels"]):
        asked = list(queries(panel))
        several = any(
            {"model", "segment"} & one.legend_labels
            for one in asked
            if one.ref not in {"records", "age", "most", "mean"}
        )
        renamed = {
            new
            for step in panel.get("transformations") or ()
            for new in step["options"].get("renameByName", {}).values()
        }
        if several or "Segment" in renamed:
            here, there = panel["fieldConfig"]["defaults"]["links"]
            assert here["url"].startswith("/d/cpcmon?var-model=")
            assert there["url"].startswith("${page:raw}")
            assert set(re.findall(r"__data\.fields\.(\w+)", here["url"])) <= renamed
            seen += 1
    assert seen == 10


def test_every_alert_of_the_shipped_rules_has_its_runbook_in_the_list_of_what_fires() -> None:
    """Of configured alerts, the kind has."""
    files = runbooks()
    names = set(re.findall(r"alert: (\w+)", (_ROOT / "deploy/prometheus/cpcmon.rules.yml").read_text()))
    by_kind = {
        "Accuracy",
        "Performance",
        "Audited",
        "Disagreement",
        "OutputDrift",
        "BaselineGap",
        "SegmentSilent",
        "InputRefused",
        "Merged",
    }
    left = {one for one in names - files.keys() if not any(one.startswith(f"Cpcmon{kind}") for kind in by_kind)}
    assert left == {"CpcmonWatchdog"}
    assert all((_ROOT / "docs/runbooks" / one).is_file() for one in files.values())


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_overrides_name_existing_queries_and_columns(panel: Json) -> None:
    asked = {one["refId"] for one in panel["targets"]}
    renamed = {
        name for step in panel.get("transformations") or () for name in step["options"].get("renameByName", {}).values()
    }
    for override in panel["fieldConfig"]["overrides"]:
        kind, wanted = override["matcher"]["id"], override["matcher"]["options"]
        assert wanted in {"byFrameRefID": asked, "byName": renamed}[kind]


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_a_cell_without_a_value_has_no_colour(panel: Json) -> None:
    """It would have the first colour of its thresholds: red."""
    for override in panel["fieldConfig"]["overrides"]:
        settings = {one["id"]: one["value"] for one in override["properties"]}
        if settings.get("custom.cellOptions", {}).get("type") == "color-background":
            (mapping,) = settings["mappings"]
            assert (mapping["type"], mapping["options"]["match"]) == ("special", "null")
            assert mapping["options"]["result"]["color"] == "transparent"


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_tables_rename_existing_columns(panel: Json) -> None:
    asked = {f"Value #{one['refId']}" for one in panel["targets"]}
    for step in panel.get("transformations") or ():
        renamed = (name.removesuffix(" (lastNotNull)") for name in step["options"].get("renameByName", {}))
        values = {name for name in renamed if name.startswith("Value")}
        # A column may only give the order.
        assert values in (set(), asked, asked - {"Value #place"})


@pytest.mark.parametrize("query", _QUERIES, ids=lambda one: one.name)
def test_every_query_selects_the_job_and_existing_series(query: Query) -> None:
    selectors = re.findall(r"([a-z][\w:]+)\{([^}]*)\}", query.expression)
    assert selectors
    for name, matchers in selectors:
        assert 'job=~"$job"' in matchers
        assert ('instance=~"$instance"' in matchers) != name.startswith("cpcmon:")
        assert name in _RECORDED | {"up"} or re.sub(r"_(bucket|sum|count)$", "", name) in _SERIES or name in _SERIES


@pytest.mark.parametrize("query", _QUERIES, ids=lambda one: one.name)
def test_counters_are_used_with_rate_or_increase(query: Query) -> None:
    risen = re.findall(r"(?:rate|increase)\((\w+)\{[^}]*\}\[(.*?)\](?: @ end\(\))?\)", query.expression)
    assert {time for _, time in risen} <= {"$__rate_interval", "$__range"}
    counters = [name for name in re.findall(r"([a-z]\w+)\{", query.expression) if name in _COUNTERS]
    assert len(counters) == sum(name in _COUNTERS for name, _ in risen)


@pytest.mark.parametrize("panels", [open_panels(), open_panels() + collapsed_panels()], ids=["closed", "opened"])
def test_panels_fill_the_grid_without_overlapping(panels: list[Json]) -> None:
    """With the last rows collapsed, and with them open. Grafana closes the gap that a collapsed row leaves."""
    rows = [one for one in DASHBOARD["panels"] if one["type"] == "row"]
    taken = dict[tuple[int, int], str]()
    for one in panels + rows:
        place = one["gridPos"]
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, f"{one['title']} and {taken[cell]}"
            assert cell[0] < 24
            taken[cell] = one["title"]
    gap = sum(one["gridPos"]["h"] * one["gridPos"]["w"] for one in collapsed_panels() if one not in panels)
    last = sum(one["gridPos"]["h"] * one["gridPos"]["w"] for one in rows[-1]["panels"] if one not in panels)
    assert len(taken) + gap - last == 24 * (1 + max(y for _, y in taken)), "a hole in the grid"


def test_panels_have_unique_ids_and_titles() -> None:
    rows = [one for one in DASHBOARD["panels"] if one["type"] == "row"]
    for one, other in combinations(all_panels() + rows, 2):
        assert one["id"] != other["id"]
        assert one["title"] != other["title"]


def test_only_variables_that_exist_are_used() -> None:
    known = {one["name"]: "x" for one in DASHBOARD["templating"]["list"]} | {"__range": "1h", "__rate_interval": "1m"}
    everything = [*_QUERIES, *variable_queries(), *annotation_queries()]
    shown = [one["title"] for one in DASHBOARD["panels"]] + [one.expression for one in everything]
    assert not any("$" in with_values(one, known) for one in shown)


@pytest.mark.parametrize(
    ("name", "series", "label"),
    [
        ("New version", 'cpcmon_build_info{%s,version="%s"}', "version"),
        ("New reference", 'cpcmon_reference_info{%s,model="m",version="1",fingerprint="%s"}', "fingerprint"),
        ("New configuration", 'cpcmon_config_info{%s,digest="%s"}', "digest"),
    ],
)
def test_a_change_is_an_annotation_for_minutes_and_a_restart_is_none(
    promtool: Path, tmp_path: Path, name: str, series: str, label: str
) -> None:
    """A break of ten minutes before the change, another one later, without a change."""
    (asked,) = (one for one in annotation_queries() if one.ref == name)
    target = 'job="cpcmon",instance="a"'
    values = {series % (target, "old"): "1x20 _x100", series % (target, "new"): "_x30 1x30 _x8 1x30"}
    expression = asked.asked_with({"job": ".+", "instance": ".+", "model": "m"})
    found = Rules(promtool, tmp_path, Config(Storage(tmp_path), (), ()), "groups: []\n")
    shown = {minute: found.values(values, minute, expression) for minute in (10, 32, 40, 72)}
    assert [minute for minute, one in shown.items() if one] == [32]
    assert f'{label}="new"' in "".join(shown[32])
