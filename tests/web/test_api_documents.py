"""The configuration, a reference and realised accuracies as JSON."""

import itertools
import json
from collections.abc import Callable, Mapping

import pytest

from monitor.core.estimate import share_interval
from monitor.reference.reference import Reference
from monitor.settings.kinds import HIDDEN, Setting
from monitor.web import api
from monitor.web.pages.routes import standard_pages
from monitor.web.site import Site
from tests.web.conftest import Serve
from tests.web.sample_reports import NOW, three_models

Document = Callable[[Site, Mapping[str, str]], bytes | None]


def read(document: Document, site: Site, **query: str) -> dict[str, object]:
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
    assert "cpc_ac" in found["estimators"]  # type: ignore[operator]


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


def test_realised_accuracies_have_the_remark(site: Site) -> None:
    name, other, *_ = three_models()
    assert read(api.realised_document, site, model=name) == {
        "model": name,
        "remark": "realised: 2 invalid lines",
        "realised": [{"at": 1.0, "segment": "all", "records": 1000, "right": 873, "accuracy": 0.873}],
    }
    assert read(api.realised_document, site, model=other) == {"model": other, "remark": None, "realised": []}


@pytest.mark.parametrize("path", ["/api/v1/configuration", "/api/v1/reference?model=density"])
def test_documents_are_json_for_get_only(serve: Serve, site: Site, path: str) -> None:
    pages = standard_pages(site, metrics=lambda: b"", reload=None, status=lambda: b"{}")
    answer = serve(pages).ask(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body)["version"] == 1
