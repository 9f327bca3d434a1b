"""The documents of the API: documented keys, null for unknown values, 404 for unknown names."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.core.estimate import WindowState, share_interval
from monitor.core.history import Series, Span
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.reference.reference import Reference
from monitor.settings.kinds import HIDDEN, Setting
from monitor.sources.base import SourceStatus
from monitor.web import api
from monitor.web.api import status_document
from monitor.web.pages.routes import standard_pages
from monitor.web.server.request import Response
from monitor.web.site import Rejects, Site, SourceView
from tests.sinks import reports
from tests.web.conftest import Serve
from tests.web.sample_reports import NOW, three_models
from tests.web.sample_site import sample_site

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
FACTS = {"cpcmon": "0", "config_digest": "0", "ready": True, "problems": []}
SOURCES = [SourceView(SourceStatus("inbox", "directory"))]


def _document() -> dict[str, Any]:
    labelled = reports.with_labels(reports.with_changes(reports.with_baselines(reports.density())))
    found = {"density": labelled, "triage": reports.fresh()}
    document: dict[str, Any] = json.loads(status_document(found, SOURCES, FACTS))
    return document


def _windows() -> Iterator[dict[str, Any]]:
    for model in _document()["models"]:
        yield from model["segments"]


def test_status_keys_match_the_documentation() -> None:
    document = _document()
    models = document["models"]
    windows = list(_windows())
    estimators = [one for window in windows for one in window["estimators"].values()]
    alerts = [one for window in windows for one in window["alerts"]]
    labels = [one["labels"] for one in windows if one["labels"] is not None]
    records = [one["track_record"] for one in windows if one["track_record"] is not None]
    for title, objects in {
        "the daemon": [document],
        "a source": document["sources"],
        "a model": models,
        "a window": windows,
        "an estimator": estimators,
        "an alert": alerts,
        "a baseline": [one["baseline"] for one in windows if one["baseline"] is not None],
        "a drift": [drift for one in windows for drift in one["drift"]],
        "a change": [change for one in windows for change in one["changes"]],
        "labels": labels,
        "a scope": [one[scope] for one in labels for scope in ("window", "horizon")],
        "an audited accuracy": [one["horizon"]["audited"] for one in labels if one["horizon"]["audited"] is not None],
        "a track record": records,
        "a block": [one["latest"] for one in records if one["latest"] is not None],
    }.items():
        (table,) = re.findall(rf"^\| of {title} \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
        listed = {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
        assert {frozenset(one) for one in objects} == {frozenset(listed)}


def test_nested_keys_are_documented() -> None:
    (of_status,) = re.findall(r"^## The status$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    (density, _) = _document()["models"]
    for key in ("reference", "input"):
        (row,) = re.findall(rf"^\| `{key}` \|(.*)$", of_status, re.MULTILINE)
        assert set(density[key]) <= set(re.findall(r"`(\w+)`", row))
    (row,) = re.findall(r"^\| `changed_class` \|(.*)$", of_status, re.MULTILINE)
    assert set(density["segments"][0]["changed_class"]) <= set(re.findall(r"`(\w+)`", row))


def test_a_window_says_what_it_was_compared_with_and_what_came_of_it() -> None:
    """A baseline that is being collected has no accuracy, and leaves no verdict."""
    whole, labelled, own, *_, collected = _document()["models"][0]["segments"]
    assert [one["verdict"] for one in (whole, labelled, own, collected)] == ["holds", "fell", "drifted", None]
    kinds = [one["baseline"]["kind"] for one in (whole, labelled, own, collected)]
    assert kinds == ["reference", "labelled", "own", "own"]
    about = {"kind": "own", "accuracy": None, "records": 128, "needed": 2000, "verified": False}
    assert about.items() <= collected["baseline"].items()
    assert (collected["drift"], collected["changed_class"]) == ([], None)
    mix, confidence = own["drift"]
    assert mix == {"measure": "class_mix", "distance": 0.25, "chance": 0.125, "limit": 0.1875, "drifted": True}
    assert (confidence["measure"], confidence["drifted"]) == ("confidence", False)
    assert own["changed_class"]["class"] == "a"


def test_a_window_has_the_evidence_of_each_direction() -> None:
    """Without a baseline there is none."""
    _, changed, _, collected, *_ = _document()["models"][0]["segments"]
    assert changed["changes"][0] == {
        "direction": "down",
        "evidence": 9.25,
        "threshold": 7.5,
        "tolerance": 0.03125,
        "began_at": reports.NOW - 1500.0,
        "records_since": 340,
        "blocks": 60,
        "held": False,
    }
    assert [(one["direction"], one["evidence"], one["blocks"]) for one in collected["changes"]] == [
        ("down", None, 23),
        ("up", None, 23),
    ]


def test_every_estimator_has_a_value_or_a_reason() -> None:
    for window in _windows():
        for name, one in window["estimators"].items():
            assert (one["accuracy"] is None) == (one["reason"] is not None)
            assert name != "adaptive" or one["accuracy"] is None or one["lower"] < one["accuracy"] < one["upper"]
        assert window["valid"] == (window["state"] == "ok")
        assert window["valid"] or window["estimators"].get("adaptive", {"accuracy": None})["accuracy"] is None


NAN = float("nan")
NAME = "<b>density</b>"


def history(model: str, segment: str, span: Span) -> Series | None:
    """Return the history of one model, with an estimate at two of three times."""
    if (model, segment) not in {(NAME, "all"), (NAME, "site=A")}:
        return None
    column = np.array([0.1, NAN, np.float32(0.7)])
    states = (WindowState.OK, WindowState.ERROR, WindowState.OK)
    step = None if span is Span.RECENT else 900.0
    records = np.array([10, 20, 30])
    columns = (column, column, column, column, column, records)
    references = ("0123456789ab", "", "ba9876543210") if segment == "all" else ()
    return Series(np.array([1.0, 2.0, 3.0]), states, *columns, step, references)


def _site() -> Site:
    """Return a site with history and rejects."""
    return Site(
        reports=dict,
        now=lambda: 4.0,
        version="1",
        history=history,
        rejects=lambda: Rejects(
            {("inbox", "bad_sum"): 3, ("archive", "empty"): 2},
            [(2.0, "inbox", "file#3fa2c81b", Pointer(Reason.BAD_SUM, 7, 100, 20, "ab", "probs: list[3]"))],
        ),
    )


def history_of(**query: str) -> dict[str, Any]:
    """Return a history."""
    content = api.history_document(_site(), query)
    assert content is not None
    document: dict[str, Any] = json.loads(content)
    return document


def listed(title: str) -> set[str]:
    """Return the documented keys of an object."""
    (table,) = re.findall(rf"^\| of {title} \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_history_keys_match_the_documentation() -> None:
    document = history_of(model=NAME)
    assert set(document) == listed("a history")


def test_each_point_has_its_reference_or_null() -> None:
    assert history_of(model=NAME)["reference"] == ["0123456789ab", None, "ba9876543210"]
    assert history_of(model=NAME, segment="site=A")["reference"] == [None] * 3


def test_reject_keys_match_the_documentation() -> None:
    content = api.rejects_document(_site(), {})
    assert content is not None
    document = json.loads(content)
    assert set(document) == listed("the rejects")
    assert {frozenset(one) for one in document["counts"]} == {frozenset(listed("a count"))}
    assert {frozenset(one) for one in document["latest"]} == {frozenset(listed("a (?:refused|rejected) record"))}
    assert document["counts"][0] == {"source": "archive", "reason": "empty", "records": 2}
    assert document["latest"][0]["origin"] == "file#3fa2c81b"


def test_points_without_an_estimate_are_null() -> None:
    document = history_of(model=NAME, span="days")
    for name in ("accuracy", "lower", "upper", "lowest", "disagreement"):
        assert document[name] == [0.1, None, 0.7]
    assert document["state"] == ["ok", "error", "ok"]
    assert (document["at"], document["records"]) == ([1.0, 2.0, 3.0], [10, 20, 30])
    assert (document["span"], document["step_seconds"]) == ("days", 900.0)


def test_both_are_served_as_json(serve: Serve) -> None:
    pages = standard_pages(_site(), metrics=lambda _: Response(b""), reload=None, status=bytes)
    served = serve(pages)
    for path in ("/api/v1/history?model=%3Cb%3Edensity%3C/b%3E&span=month", "/api/v1/rejects"):
        answer = served.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body)["version"] == 1


def test_rejects_are_empty_at_first() -> None:
    empty = Site(reports=dict, now=lambda: 4.0, version="1")
    content = api.rejects_document(empty, {})
    assert content is not None
    assert json.loads(content) == {"version": 1, "counts": [], "latest": []}
    assert api.history_document(empty, {"model": NAME}) is None


Document = Callable[[Site, Mapping[str, str]], bytes | None]


def read(document: Document, site: Site, **query: str) -> dict[str, Any]:
    """Return a parsed document."""
    found = document(site, query)
    assert found is not None
    content = json.loads(found)
    assert content.pop("version") == 1
    return dict(content)


def test_the_configuration_is_a_list_of_settings(site: Site) -> None:
    """Hidden settings have no value; defaults have no line."""
    assert read(api.configuration_document, site) == {
        "settings": [
            {"path": "storage.path", "value": "state", "hidden": False, "line": 3},
            {"path": "a.url", "value": None, "hidden": True, "line": None},
        ]
    }


def test_a_value_that_looks_hidden_is_not_hidden() -> None:
    site = Site(three_models, lambda: NOW, "1", settings=lambda: (Setting("a", f'"{HIDDEN}"', 1),))
    assert read(api.configuration_document, site)["settings"] == [
        {"path": "a", "value": '"(hidden)"', "hidden": False, "line": 1}
    ]


def test_a_reference_has_classes_accuracy_calibration_and_warnings(site: Site, reference: Reference) -> None:
    found = read(api.reference_document, site, model="density")
    numbers, summary = reference.calibration, reference.summary
    interval = share_interval(numbers.right, 300, 0.95)
    assert found["classes"] == [
        {"class": name, "records": records, "right": right, "predicted": predicted}
        for name, records, right, predicted in zip(
            reference.classes, summary.class_records, summary.class_right, summary.class_predicted, strict=True
        )
    ]
    assert {key: found[key] for key in ("model", "model_version", "created", "fingerprint", "records", "right")} == {
        "model": "density",
        "model_version": "2.1",
        "created": reference.created,
        "fingerprint": reference.fingerprint,
        "records": 300,
        "right": numbers.right,
    }
    assert (found["accuracy"], found["lower"], found["upper"], found["level"]) == (
        numbers.right / 300,
        interval.lower,
        interval.upper,
        0.95,
    )
    assert interval.lower < numbers.accuracy < interval.upper
    assert (found["temperature"], found["calibration_error"], found["calibration_error_scaled"]) == (
        numbers.temperature,
        summary.calibration_error,
        summary.calibration_error_scaled,
    )
    assert found["warnings"] == [
        {"warning": "few_records", "sentence": "300 records: with fewer than 500, intervals are wide"}
    ]
    assert "cpc_ac" in found["estimators"]


@pytest.mark.parametrize("name", ["reliability", "reliability_scaled"])
def test_reliability_bins_have_bounds_and_null_when_empty(site: Site, reference: Reference, name: str) -> None:
    bins = read(api.reference_document, site, model="density")[name]
    assert isinstance(bins, list)
    assert [one["records"] for one in bins] == [one.records for one in getattr(reference.summary, name)]
    assert (bins[0]["from"], bins[-1]["to"], len(bins)) == (0.0, 1.0, 15)
    assert all(one["to"] == after["from"] for one, after in itertools.pairwise(bins))
    assert bins[0] == {"from": 0.0, "to": 1 / 15, "records": 0, "right": 0, "confidence": None, "accuracy": None}
    full = [one for one in bins if one["records"]]
    assert full
    assert all(one["from"] <= one["confidence"] <= one["to"] for one in full)
    assert all(one["accuracy"] == one["right"] / one["records"] for one in full)


@pytest.mark.parametrize("path", ["/api/v1/configuration", "/api/v1/reference?model=density"])
def test_documents_are_json_for_get_only(serve: Serve, site: Site, path: str) -> None:
    pages = standard_pages(site, metrics=lambda _: Response(b""), reload=None, status=lambda: b"{}")
    answer = serve(pages).ask(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body)["version"] == 1


def site_with_performance() -> Site:
    """Return a site whose model has metrics and a class mix."""
    found = {"density": reports.with_performance(reports.density())}
    return Site(reports=lambda: found, now=lambda: NOW, version="1")


def site_with_labels() -> Site:
    """Return a site whose model takes labels, and one that takes none."""
    found = {"density": reports.with_labels(reports.density()), "triage": reports.fresh()}
    return Site(reports=lambda: found, now=lambda: NOW, version="1")


def test_labels_of_a_window() -> None:
    """A class with too few cases has no shares, a block without labels no truth, an estimator without intervals no coverage."""
    found = read(api.labels_document, site_with_labels(), model="density")
    audited = found["labels"]["horizon"]["audited"]
    assert (audited["value"], audited["lower"], audited["upper"]) == (0.71875, 0.59375, 0.84375)
    assert (audited["labels"], audited["picked"], audited["came"], audited["records"]) == (60, 80, 0.75, 2400)
    assert found["labels"]["window"]["realised"] == {"value": 0.75, "lower": 0.6875, "upper": 0.8125}
    a, _, c = found["classes"]
    lower, upper = share_interval(60, 90, 0.95)
    assert (a["class"], a["cases"], a["decided"]) == ("a", 90, 80)
    assert a["sensitivity"] == {"value": 60 / 90, "lower": pytest.approx(lower), "upper": pytest.approx(upper)}
    assert c["ppv"]["value"] == 8 / 20
    few = read(api.labels_document, site_with_labels(), model="density", segment="site=A")
    assert (few["classes"][2]["cases"], few["classes"][2]["sensitivity"]) == (4, None)
    assert few["labels"]["horizon"]["audited"] is None
    record = found["track_record"]
    assert (record["judged"], record["best"], record["wrong"]) == (2, "adaptive", True)
    assert record["estimators"]["ac"]["coverage"] is None
    assert record["latest"]["estimates"] == {"adaptive": {"value": 0.84375, "lower": 0.8125, "upper": 0.875}}
    first, second, last = found["blocks"]
    assert [one["labels"] for one in (first, second, last)] == [64, 64, 0]
    assert (last["realised"], last["audited"], set(last["estimates"])) == (None, None, {"adaptive", "ac"})
    # The page of all windows computes no classes.
    whole = json.loads(status_document(site_with_labels().reports(), SOURCES, FACTS))["models"][0]["segments"][0]
    assert (whole["labels"], whole["track_record"]) == (found["labels"], record)


@pytest.mark.parametrize(("model", "segment"), [("density", "site=E"), ("triage", "all")])
def test_windows_without_records_and_models_without_labels_have_null(model: str, segment: str) -> None:
    found = read(api.labels_document, site_with_labels(), model=model, segment=segment)
    assert (found["labels"], found["track_record"], found["classes"], found["blocks"]) == (None, None, [], [])


def test_performance_of_a_window() -> None:
    """A class that the reference does not have has no share; without enough cases there is a reason."""
    site = site_with_performance()
    found = read(api.performance_document, site, model="density", segment="site=A")
    assert found["performance"] == [
        {"metric": metric, "class": of, "value": value, "lower": value - 0.125, "upper": value + 0.125, "cases": 40.0,
         "why": None, "reference": own}
        for metric, of, value, own in (
            ("sensitivity", "b", 0.5, 0.8), ("ppv", "b", 0.5625, 0.625), ("sensitivity", None, 0.625, 0.8)
        )
    ]  # fmt: skip
    assert found["class_mix"] == [
        {"class": "a", "value": 0.75, "lower": 0.625, "upper": 0.875, "reference": 0.75},
        {"class": "b", "value": 0.25, "lower": 0.125, "upper": 0.375, "reference": 0.25},
        {"class": "c", "value": None, "lower": None, "upper": None, "reference": 0.0},
    ]
    whole = read(api.performance_document, site, model="density")
    assert isinstance(whole["performance"], list)
    few = {"value": None, "lower": None, "upper": None, "why": "too_few_cases"}
    assert [one | few for one in whole["performance"]] == whole["performance"]
    stale = read(api.performance_document, site, model="density", segment="site=B")
    assert (stale["state"], stale["performance"], stale["class_mix"]) == ("stale", [], [])
    assert api.performance_document(site, {"model": "density", "segment": "site=Z"}) is None


def test_an_alert_on_a_metric_says_which() -> None:
    """In the status, which has no lists of metrics: they are of one window at a time."""
    document = json.loads(api.status_document(site_with_performance().reports(), (), {}))
    window = document["models"][0]["segments"][0]
    assert [(one["estimator"], one["metric"], one["class"]) for one in window["alerts"]] == [
        ("adaptive", None, None), (None, None, None), (None, "sensitivity", "b"),
    ]  # fmt: skip
    assert "performance" not in window


def _alerts(**query: str) -> Any:
    found = api.alerts_document(sample_site(), query)
    return None if found is None else json.loads(found)


def test_alerts_are_those_that_are_not_quiet_and_the_history_newest_first() -> None:
    document = _alerts()
    assert {one["phase"] for one in document["alerts"]} <= {"pending", "firing", "recovering"}
    assert {one["model"] for one in document["alerts"]} == {"density"}
    times = [one["at"] for one in document["history"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == document["rows"]
    ended = next(one for one in document["history"] if one["to"] == "ok")
    assert (ended["from"], ended["seconds"]) == ("recovering", 25 * 3600.0)


def test_alerts_can_be_filtered_and_limited() -> None:
    assert {one["segment"] for one in _alerts(model="density", segment="site=Bonn")["history"]} == {"site=Bonn"}
    assert len(_alerts(limit="2")["history"]) == 2
    # Its window is gone, its rows are not.
    assert _alerts(segment="site=Essen")["rows"] == 3
    assert _alerts(model="triage")["history"] == []


@pytest.mark.parametrize(
    "query", [{"model": "none"}, {"segment": "none"}, {"limit": "-1"}, {"limit": "x"}, {"limit": "9" * 5000}]
)
def test_unknown_names_and_limits_of_alerts_are_not_found(query: dict[str, str]) -> None:
    assert _alerts(**query) is None
