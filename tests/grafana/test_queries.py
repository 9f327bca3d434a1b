"""Every query of the dashboard, on a real Prometheus that scrapes real daemons."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain

import pytest

from tests.daemon.process import CLASSES
from tests.grafana.dashboard import (
    Json,
    Query,
    annotation_queries,
    collapsed_panels,
    open_panels,
    queries,
    variable_queries,
)
from tests.grafana.prometheus_server import PATIENCE_SECONDS, Prometheus, prometheus, wait_until_nothing_is_missing
from tests.grafana.site import MODELS, SITES, Sick, rules_of, start_sick, start_well

pytestmark = pytest.mark.slow

# Scraped every second instead of every half minute.
_TIMES = {"__rate_interval": "20s", "__range": "5m"}
SICK = {
    "job": "sick-cpcmon",
    "instance": ".+",
    "model": "density",
    "segment": "all",
    "estimator": "adaptive",
    **_TIMES,
}
WELL = SICK | {"job": "well-cpcmon", "model": "calm"}
EVERYWHERE = SICK | {"job": ".+"}


class Watched:
    """The daemons, and the Prometheus that scrapes them."""

    def __init__(self, prometheus: Prometheus, sick: Sick) -> None:
        self.prometheus = prometheus
        self.sick = sick

    def wait_for_data(self, asked: list[Query], values: Mapping[str, str]) -> None:
        """Wait until every query returns data with the labels of its legend."""
        answered = set[str]()

        def missing() -> list[str]:
            problems = []
            for one in (query for query in asked if query.name not in answered):
                if problem := self.prometheus.problem(one, values):
                    problems.append(problem)
                else:
                    answered.add(one.name)
            return problems

        wait_until_nothing_is_missing(missing, self.sick.send_more)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Both daemons, scraped by one Prometheus."""
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        sick, well = start_sick(stack, folder / "sick"), start_well(stack, folder / "well")
        jobs = {"sick-cpcmon": sick.process, "well-cpcmon": well}
        targets = {job: [process.url.removeprefix("http://")] for job, process in jobs.items()}
        server = stack.enter_context(prometheus(folder, targets, rules_of(sick.folder)))
        yield Watched(server, sick)


def panel(title: str) -> Json:
    (found,) = (one for one in open_panels() if one["title"] == title)
    return found


def test_every_query_of_open_panels_and_variables_returns_data_with_the_labels_of_its_legend(watched: Watched) -> None:
    """A model with segments, models in each state, rejected records."""
    of_labels = {f"Estimated accuracy/{ref}" for ref in ("audited", "realised")} | {"Segments, worst first/realised"}
    asked = [one for one in queries(*open_panels()) if one.name not in of_labels]
    watched.wait_for_data([*asked, *variable_queries()], SICK)
    taken = [one for one in queries(*open_panels()) if one.name in of_labels]
    assert len(taken) == len(of_labels)
    watched.wait_for_data(taken, SICK | {"model": "checked"})


def test_the_queries_of_the_performance_row_return_data_or_nothing_where_it_is_off(watched: Watched) -> None:
    """AUROC needs two classes."""
    asked = [one for one in queries(*collapsed_panels("Performance")) if one.panel != "AUROC"]
    watched.wait_for_data(asked, SICK)
    (estimates,) = (one for one in asked if one.name == "Sensitivity/estimate")
    assert {labels["class"] for labels, _ in watched.prometheus.answer(estimates, SICK)} == {*CLASSES, "all classes"}
    for one in queries(*collapsed_panels("Performance")):
        assert one.ref in {"decided", "place"} or not watched.prometheus.answer(one, WELL), one.name


def test_the_queries_of_the_row_about_labels_return_data_or_nothing_without_labels(watched: Watched) -> None:
    """The labels of a whole block have come."""
    asked = list(queries(*collapsed_panels("Labels")))
    watched.wait_for_data(asked, SICK | {"model": "checked"})
    for one in asked:
        assert one.name == "Audited accuracy/estimate" or not watched.prometheus.answer(one, WELL), one.name


def test_the_queries_about_one_model_return_data_for_a_segment_and_for_another_estimator(watched: Watched) -> None:
    """A segment has no other estimators by default."""
    of_labels = {"audited", "realised"}
    shown = [one for one in queries(panel("Estimated accuracy")) if one.ref not in of_labels]
    others = [*queries(panel("Disagreement of the estimators"), panel("Drift of the outputs"))]
    headline, estimators = queries(panel("All estimators"))
    segment = SICK | {"segment": f"site={SITES[3]}"}
    watched.wait_for_data([*shown, *others, headline], segment)
    assert not watched.prometheus.answer(estimators, segment)
    of_adaptive = [one for one in shown if one.ref.startswith("field_")]
    watched.wait_for_data([one for one in shown if one not in of_adaptive], SICK | {"estimator": "doc_ts"})
    assert not any(watched.prometheus.answer(one, SICK | {"estimator": "doc_ts"}) for one in of_adaptive)


def test_no_open_panel_is_empty_for_a_healthy_daemon(watched: Watched) -> None:
    """No alert, no rejected records, no backlog, no segments. A panel that may be empty says what this means."""

    def empty() -> list[str]:
        return [
            one["title"]
            for one in open_panels()
            if "noValue" not in one["fieldConfig"]["defaults"]
            and not any(watched.prometheus.answer(query, WELL) for query in queries(one))
        ]

    wait_until_nothing_is_missing(empty, watched.sick.send_more)


def test_a_firing_alert_is_an_annotation(watched: Watched) -> None:
    """Of the selected model, without the watchdog."""
    asked = [one for one in annotation_queries() if one.ref == "Firing alerts"]
    watched.wait_for_data(asked, SICK | {"model": "poor"})
    names = {labels["alertname"] for labels, _ in watched.prometheus.answer(asked[0], EVERYWHERE | {"model": ".+"})}
    assert "CpcmonAccuracyLow" in names
    assert "CpcmonWatchdog" not in names
    assert not watched.prometheus.answer(asked[0], SICK | {"model": "free"})


def test_each_model_is_one_tile_red_where_an_alert_fires(watched: Watched) -> None:
    """Thresholds on high accuracy do not count."""
    asked = list(queries(panel("Worst window of each model")))
    expected = {
        "alert": {"poor"},
        "below": {"unsure"},
        "fine": {"free"},
        "unknown_alert": {"quiet"},
        "unknown": {"empty"},
    }

    def wrong() -> list[str]:
        answers = {one.ref: [labels for labels, _ in watched.prometheus.answer(one, SICK)] for one in asked}
        shown = {ref: {labels["model"] for labels in found} for ref, found in answers.items()}
        right = all(models <= shown[ref] for ref, models in expected.items())
        once = len({*chain(*shown.values())}) == sum(map(len, answers.values())) == len(MODELS)
        return [] if once and right else [f"expected {expected} and others, found {shown}"]

    wait_until_nothing_is_missing(wrong, watched.sick.send_more)
    (unknown,) = (labels for labels, _ in watched.prometheus.answer(asked[-1], SICK))
    assert unknown["state"] == "warming"


def test_the_tile_of_a_model_is_its_worst_window_against_its_threshold(watched: Watched) -> None:
    (above,) = (one for one in queries(panel("Segments, worst first")) if one.ref == "above")
    tiles = list(queries(panel("Worst window of each model")))
    watched.wait_for_data([above], SICK)

    def wrong() -> list[str]:
        margins = {labels["segment"]: value for labels, value in watched.prometheus.answer(above, SICK)}
        shown = [
            labels["segment"]
            for one in tiles
            for labels, _ in watched.prometheus.answer(one, SICK)
            if labels["model"] == "density"
        ]
        worst = min(margins, key=lambda one: margins[one])
        return [] if shown == [worst] and worst != "all" else [f"expected {worst} of {margins}, found {shown}"]

    # An evaluation between two queries may change the order.
    wait_until_nothing_is_missing(wrong, lambda: None)


def test_what_fires_is_listed_once_with_since_value_and_kind_also_without_rules(watched: Watched) -> None:
    """The alert fires in the daemon and in Prometheus; the healthy daemon has a model of the same name."""
    asked = {one.ref: one for one in queries(panel("What fires"))}
    watched.wait_for_data(list(asked.values()), SICK)
    without_rules = replace(asked["since"], expression=asked["since"].expression.replace("ALERTS", "NOTHING"))
    for one in (asked["since"], asked["value"], without_rules):
        rows = [labels for labels, _ in watched.prometheus.answer(one, SICK) if labels["model"] == "poor"]
        of_accuracy = [labels for labels in rows if labels["alert"] == "accuracy_low"]
        assert [(labels["severity"], labels["runbook"]) for labels in of_accuracy] == [("critical", "accuracy_low")]
    since = max(value for _, value in watched.prometheus.answer(asked["since"], SICK))
    assert 0 < time.time() - since / 1000 < 2 * PATIENCE_SECONDS


def test_the_state_of_a_model_with_a_firing_alert_is_an_alert(watched: Watched) -> None:
    (asked,) = queries(panel("State of each model"))
    (names,) = panel("State of each model")["fieldConfig"]["defaults"]["mappings"]

    def wrong() -> list[str]:
        found = watched.prometheus.answer(asked, SICK)
        shown = {labels["model"]: names["options"][str(round(value))]["text"] for labels, value in found}
        right = {"poor": "alert", "free": "ok", "empty": "warming"}
        return [] if right.items() <= shown.items() else [f"expected {right}, found {shown}"]

    wait_until_nothing_is_missing(wrong, watched.sick.send_more)


@pytest.mark.parametrize(
    ("title", "ref"),
    [
        ("Estimated accuracy", "estimate"),
        ("Estimated accuracy", "lower"),
        ("Estimated accuracy", "upper"),
        ("Segments, worst first", "estimate"),
        ("Segments, worst first", "above"),
        ("The 10 worst segments over time, in points from the baseline", "worst01"),
        ("Confidence", "now"),
    ],
)
def test_a_healthy_model_of_the_same_name_does_not_hide_a_bad_one(watched: Watched, title: str, ref: str) -> None:
    """With all jobs selected, two of them may have a model of the same name."""
    (asked,) = (one for one in queries(panel(title)) if one.ref == ref)
    chosen = {"model": "poor"}
    watched.wait_for_data([asked], SICK | chosen)
    watched.wait_for_data([asked], WELL | chosen)
    (((_, sick),), ((_, well),), ((_, shown),)) = (
        watched.prometheus.answer(asked, values | chosen) for values in (SICK, WELL, EVERYWHERE)
    )
    # The unhealthy daemon may evaluate between two queries.
    assert well - shown > 0.8 * (well - sick) > 0


def test_a_model_of_the_same_name_does_not_hide_one_without_an_estimate(watched: Watched) -> None:
    (asked,) = queries(panel("State of each model"))
    watched.wait_for_data([asked], WELL)

    def wrong() -> list[str]:
        shown = {
            values["job"]: {labels["model"]: place for labels, place in watched.prometheus.answer(asked, values)}[
                "empty"
            ]
            for values in (SICK, WELL, EVERYWHERE)
        }
        right = shown[SICK["job"]] == shown[EVERYWHERE["job"]] > shown[WELL["job"]] == 1.0
        return [] if right else [f"expected the worse of two states, found {shown}"]

    wait_until_nothing_is_missing(wrong, watched.sick.send_more)


def test_the_heat_map_has_the_worst_segments_first_and_each_once(watched: Watched) -> None:
    asked = list(queries(panel("The 10 worst segments over time, in points from the baseline")))
    watched.wait_for_data(asked, SICK)
    (estimates,) = (one for one in queries(panel("Segments, worst first")) if one.ref == "estimate")

    def out_of_order() -> list[str]:
        # An evaluation between two queries may change the order.
        accuracies = {labels["segment"]: value for labels, value in watched.prometheus.answer(estimates, SICK)}
        expected = sorted(accuracies.values())[: len(asked)]
        # The latest value is that at the end of the time range.
        shown = [labels["segment"] for one in asked for labels, _ in watched.prometheus.answer(one, SICK)]
        found = [accuracies[one] for one in shown]
        # By value: segments may have the same.
        return [] if found == expected and len({*shown}) == len(shown) else [f"expected {expected}, found {shown}"]

    wait_until_nothing_is_missing(out_of_order, lambda: None)
