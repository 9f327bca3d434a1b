"""Any query gets a page or 404, never an error or an echo."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from monitor.state.evaluation_history import History
from monitor.web.pages.routes import standard_pages
from monitor.web.server.request import Response
from monitor.web.site import Site
from tests.web.conftest import Serve
from tests.web.sample_reports import NOW
from tests.web.sample_site import sample_report, sample_site

Ask = Callable[[str], int]
CANARY = "zzpatient"
HUGE = f"{CANARY}{'x' * 40_000}"
NAMED = {"/model": "name", "/reference": "name", "/api/v1/history": "model", "/api/v1/reference": "model"}  # fmt: skip
HOSTILE = {
    "huge": HUGE,
    "nul": f"{CANARY}%00",
    "newline": f"{CANARY}%0d%0aSet-Cookie:%20a=b",
    "not UTF-8": f"{CANARY}%ff%fe",
    "a surrogate": f"{CANARY}%ed%a0%80",
    "half an escape": f"{CANARY}%f",
    "a path": f"../../{CANARY}",
    "HTML": f"%3Cscript%3E{CANARY}%3C/script%3E",
    "SQL": f"'%20OR%201=1%20--{CANARY}",
    "empty": "",
}


def _site() -> Site:
    """Return a site with a real history."""
    history = History()
    history.note(sample_report(), NOW)
    return replace(sample_site(), history=history.series)


@pytest.fixture
def status_of(serve: Serve, caplog: pytest.LogCaptureFixture) -> Ask:
    """Request a target and check every response; returns its status."""
    client = serve(standard_pages(_site(), metrics=lambda _: Response(b""), reload=None, status=bytes))
    caplog.set_level(logging.DEBUG)

    def ask(target: str) -> int:
        answer = client.ask(target)
        assert CANARY.encode() not in answer.body
        assert CANARY not in str(answer.headers)
        assert "set-cookie" not in answer.headers
        assert caplog.records == []
        return int(answer.status)

    return ask


@pytest.mark.parametrize("path", NAMED)
def test_any_unknown_name_is_404(status_of: Ask, path: str) -> None:
    assert status_of(path) == 404
    assert {kind: status_of(f"{path}?{NAMED[path]}={value}") for kind, value in HOSTILE.items()} == dict.fromkeys(
        HOSTILE, 404
    )


@pytest.mark.parametrize(("path", "key"), [("/model", "name"), ("/api/v1/history", "model")])
@pytest.mark.parametrize("other", ["segment", "span"])
def test_an_unknown_segment_or_span_is_404(status_of: Ask, path: str, key: str, other: str) -> None:
    found = {kind: status_of(f"{path}?{key}=density&{other}={value}") for kind, value in HOSTILE.items() if value}
    assert found == dict.fromkeys(found, 404)


@pytest.mark.parametrize(("path", "key"), [("/model", "name"), ("/api/v1/history", "model")])
def test_the_first_of_a_repeated_parameter_counts(status_of: Ask, path: str, key: str) -> None:
    assert status_of(f"{path}?{key}=density&{key}={CANARY}") == 200
    assert status_of(f"{path}?{key}={CANARY}&{key}=density") == 404
    assert status_of(f"{path}?{key}=density&span=days&span={CANARY}") == 200


@pytest.mark.parametrize("path", ["/", "/rejects", "/configuration", "/api/v1/rejects", "/api/v1/configuration"])
def test_unknown_parameters_are_ignored(status_of: Ask, path: str) -> None:
    assert {
        kind: status_of(f"{path}?name={value}&{value}={value}") for kind, value in HOSTILE.items() if value != HUGE
    } == {kind: 200 for kind, value in HOSTILE.items() if value != HUGE}


def test_a_query_with_too_many_parameters_is_ignored(status_of: Ask) -> None:
    many = "&".join(f"k{number}={CANARY}" for number in range(1000))
    assert status_of(f"/model?name=density&{many}") == 404
    assert status_of(f"/api/v1/history?model=density&{many}") == 404
