"""The committed dashboard is up to date, and follows conventions."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from deploy.grafana.dashboard import __main__ as command
from deploy.grafana.dashboard.assembly import RUNBOOKS, text
from tests.grafana.dashboard import (
    DASHBOARD,
    FILE,
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
from tests.sinks.golden import page
from tests.sinks.pages import families

_ROOT = Path(__file__).resolve().parents[2]
_QUERIES = list(queries(*all_panels()))
_SERIES = families(page().encode())
_COUNTERS = {name for name, (kind, _) in _SERIES.items() if kind == "counter"}
_RECORDED = set(re.findall(r"record: (\S+)", (_ROOT / "deploy/prometheus/cpcmon.rules.yml").read_text()))


def test_the_file_is_up_to_date() -> None:
    """After an intended change: `python -m deploy.grafana.dashboard`."""
    assert FILE.read_text("utf-8").splitlines() == text().splitlines()


def test_the_command_sets_the_address_of_the_runbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "own.json"
    monkeypatch.setattr(
        "sys.argv", ["dashboard", "--runbooks", "https://wiki.hospital.example/", "--output", str(output)]
    )
    assert command.main() == 0
    assert output.read_text("utf-8") == FILE.read_text("utf-8").replace(RUNBOOKS, "https://wiki.hospital.example/")


def test_it_can_be_provisioned() -> None:
    """It has no id, a fixed uid, and no placeholders of an import."""
    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "cpcmon"
    assert 36 <= DASHBOARD["schemaVersion"] <= 39
    assert (DASHBOARD["editable"], DASHBOARD["graphTooltip"], DASHBOARD["refresh"]) == (False, 1, "1m")
    assert not {"__inputs", "__requires"} & DASHBOARD.keys()


def test_it_has_the_variables_in_their_order() -> None:
    found: dict[str, Json] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(found) == ["datasource", "job", "instance", "model", "segment", "estimator", "runbooks"]
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
    runbook = re.fullmatch(r"\$\{runbooks\}(\w+\.md)", link["url"])
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
def test_ratios_are_drawn_from_0_to_1(panel: Json) -> None:
    drawn = panel["fieldConfig"]["defaults"]
    if drawn["unit"] == "percentunit":
        # The heat map shows differences.
        expected = (-0.2, 0) if panel["type"] == "status-history" else (0, 1)
        assert (drawn["min"], drawn["max"]) == expected
    else:
        assert "_ratio{" not in "".join(one.expression for one in queries(panel)) or panel["type"] == "table"


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
        if "custom.cellOptions" in settings:
            (mapping,) = settings["mappings"]
            assert (mapping["type"], mapping["options"]["match"]) == ("special", "null")
            assert mapping["options"]["result"]["color"] == "transparent"


@pytest.mark.parametrize("panel", all_panels(), ids=lambda one: one["title"])
def test_tables_rename_existing_columns(panel: Json) -> None:
    asked = {f"Value #{one['refId']}" for one in panel["targets"]}
    for step in panel.get("transformations") or ():
        values = {name for name in step["options"].get("renameByName", {}) if name.startswith("Value")}
        assert values in (set(), asked)


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
    risen = re.findall(r"(?:rate|increase)\((\w+)\{[^}]*\}\[(.*?)\]\)", query.expression)
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
    texts = [one["title"] for one in DASHBOARD["panels"]] + [one.expression for one in everything]
    assert not any("$" in with_values(one, known) for one in texts)
