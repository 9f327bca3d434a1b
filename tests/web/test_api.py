"""History and rejects as JSON: documented keys, null for unknown values, 404 for unknown names."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from monitor.core.estimate import WindowState
from monitor.core.history import Series, Span
from monitor.core.report import Realised
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.web import api
from monitor.web.pages.routes import standard_pages
from monitor.web.site import Rejects, Site
from tests.web.conftest import Serve

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
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


def site() -> Site:
    """Return a site with history, realised accuracies and rejects."""
    return Site(
        reports=dict,
        healthy=list,
        ready=list,
        now=lambda: 4.0,
        version="1",
        history=history,
        realised=lambda model: [Realised(2.0, "all", 4, 3), Realised(3.0, "site=A", 8, 4)] if model == NAME else [],
        rejects=lambda: Rejects(
            {("inbox", "bad_sum"): 3, ("archive", "empty"): 2},
            [(2.0, "inbox", "file#3fa2c81b", Pointer(Reason.BAD_SUM, 7, 100, 20, "ab", "probs: list[3]"))],
        ),
    )


def history_of(**query: str) -> dict[str, Any]:
    """Return a history."""
    content = api.history_document(site(), query)
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
    assert set(document["realised"][0]) == listed("a realised accuracy") - {"segment"}


def test_each_point_has_its_reference_or_null() -> None:
    assert history_of(model=NAME)["reference"] == ["0123456789ab", None, "ba9876543210"]
    assert history_of(model=NAME, segment="site=A")["reference"] == [None] * 3


def test_reject_keys_match_the_documentation() -> None:
    content = api.rejects_document(site(), {})
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


def test_a_segment_has_its_own_realised_accuracies() -> None:
    assert history_of(model=NAME)["realised"] == [{"at": 2.0, "records": 4, "right": 3, "accuracy": 0.75}]
    assert history_of(model=NAME, segment="site=A")["realised"] == [
        {"at": 3.0, "records": 8, "right": 4, "accuracy": 0.5}
    ]


def test_both_are_served_as_json(serve: Serve) -> None:
    pages = standard_pages(site(), metrics=bytes, reload=None, status=bytes)
    served = serve(pages)
    for path in ("/api/v1/history?model=%3Cb%3Edensity%3C/b%3E&span=month", "/api/v1/rejects"):
        answer = served.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body)["version"] == 1


def test_rejects_are_empty_at_first() -> None:
    empty = Site(reports=dict, healthy=list, ready=list, now=lambda: 4.0, version="1")
    content = api.rejects_document(empty, {})
    assert content is not None
    assert json.loads(content) == {"version": 1, "counts": [], "latest": []}
    assert api.history_document(empty, {"model": NAME}) is None
