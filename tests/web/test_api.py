"""History and rejects as JSON: every key is documented, nothing is no number, unknown names are 404."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.core.estimate import WindowState
from monitor.core.history import Series, Span
from monitor.core.report import Realised
from monitor.web import api as api_history
from monitor.web import api as api_rejects
from monitor.web.pages.routes import standard_pages
from monitor.web.site import RefusedRecord, Rejects, Site
from tests.web.conftest import Serve

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
NAN = float("nan")
NAME = "<b>density</b>"


def history(model: str, segment: str, span: Span) -> Series | None:
    """Know one model with one segment, of which something could be said at two of three times."""
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
    """Return a daemon that has all there is."""
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
            [RefusedRecord(2.0, "inbox", "file#3fa2c81b", "bad_sum", 7, 100, 20, "ab", "probs: list[3]")],
        ),
    )


def asked(**query: str) -> dict[str, Any]:
    """Return a history."""
    content = api_history.history_document(site(), query)
    assert content is not None
    document: dict[str, Any] = json.loads(content)
    return document


def listed(title: str) -> set[str]:
    """Return the keys that the documentation lists of something."""
    (table,) = re.findall(rf"^\| of {title} \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_key_of_a_history_is_documented_and_no_other() -> None:
    document = asked(model=NAME)
    assert set(document) == listed("a history")
    assert set(document["realised"][0]) == listed("a realised accuracy") - {"segment"}


def test_each_point_has_its_reference_and_null_where_it_is_not_known() -> None:
    assert asked(model=NAME)["reference"] == ["0123456789ab", None, "ba9876543210"]
    assert asked(model=NAME, segment="site=A")["reference"] == [None] * 3


def test_every_key_of_the_rejects_is_documented_and_no_other() -> None:
    content = api_rejects.rejects_document(site(), {})
    assert content is not None
    document = json.loads(content)
    assert set(document) == listed("the rejects")
    assert {frozenset(one) for one in document["counts"]} == {frozenset(listed("a count"))}
    assert {frozenset(one) for one in document["latest"]} == {frozenset(listed("a (?:refused|rejected) record"))}
    assert document["counts"][0] == {"source": "archive", "reason": "empty", "records": 2}
    assert document["latest"][0]["origin"] == "file#3fa2c81b"


def test_what_could_not_be_said_is_null_in_every_column() -> None:
    document = asked(model=NAME, span="days")
    for name in ("accuracy", "lower", "upper", "lowest", "disagreement"):
        assert document[name] == [0.1, None, 0.7]
    assert document["state"] == ["ok", "error", "ok"]
    assert (document["at"], document["records"]) == ([1.0, 2.0, 3.0], [10, 20, 30])
    assert (document["span"], document["step_seconds"]) == ("days", 900.0)


def test_a_segment_has_its_own_realised_accuracies() -> None:
    assert asked(model=NAME)["realised"] == [{"at": 2.0, "records": 4, "right": 3, "accuracy": 0.75}]
    assert asked(model=NAME, segment="site=A")["realised"] == [{"at": 3.0, "records": 8, "right": 4, "accuracy": 0.5}]


@pytest.mark.parametrize(
    "query",
    ["", "?model=", "?model=canary", "?model=%3Cb%3Edensity%3C/b%3E&segment=canary", "?model=density&span=canary"],
)
def test_a_name_that_is_not_known_is_404_and_not_repeated(serve: Serve, query: str) -> None:
    pages = standard_pages(site(), metrics=bytes, reload=None, status=bytes)
    answer = serve(pages).ask(f"/api/v1/history{query}")
    assert answer.status == 404
    assert b"canary" not in answer.body


def test_both_are_served_as_json(serve: Serve) -> None:
    pages = standard_pages(site(), metrics=bytes, reload=None, status=bytes)
    served = serve(pages)
    for path in ("/api/v1/history?model=%3Cb%3Edensity%3C/b%3E&span=month", "/api/v1/rejects"):
        answer = served.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body)["version"] == 1


def test_before_anything_is_known_there_are_no_rejects() -> None:
    empty = Site(reports=dict, healthy=list, ready=list, now=lambda: 4.0, version="1")
    content = api_rejects.rejects_document(empty, {})
    assert content is not None
    assert json.loads(content) == {"version": 1, "counts": [], "latest": []}
    assert api_history.history_document(empty, {"model": NAME}) is None
