"""The status as JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from monitor.sources.base import SourceStatus
from monitor.web.api import status_document
from monitor.web.site import SourceView
from tests.sinks import reports

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
FACTS = {"cpcmon": "0", "config_digest": "0", "ready": True, "problems": []}
SOURCES = [SourceView(SourceStatus("inbox", "directory"))]


def _document() -> dict[str, Any]:
    found = {"density": reports.density(), "triage": reports.fresh()}
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
    for title, objects in {
        "the daemon": [document],
        "a source": document["sources"],
        "a model": models,
        "a window": windows,
        "an estimator": estimators,
        "an alert": alerts,
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


def test_every_estimator_has_a_value_or_a_reason() -> None:
    for window in _windows():
        for name, one in window["estimators"].items():
            assert (one["accuracy"] is None) == (one["reason"] is not None)
            assert name != "consensus" or one["accuracy"] is None or one["lower"] < one["accuracy"] < one["upper"]
        assert window["valid"] == (window["state"] == "ok")
        assert window["valid"] or window["estimators"].get("consensus", {"accuracy": None})["accuracy"] is None
