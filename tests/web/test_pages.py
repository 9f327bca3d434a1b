"""The standard pages over HTTP."""

from dataclasses import replace
from http import HTTPStatus

import pytest

from monitor.web.pages.rendering import CSP
from monitor.web.pages.routes import METRICS, OPENMETRICS, metrics_type, probe_pages, standard_pages
from monitor.web.server.request import Pages, Response
from monitor.web.site import Health, Site
from tests.web.conftest import Serve
from tests.web.sample_reports import NOW, three_models


class Daemon:
    """The daemon behind the pages."""

    def __init__(self) -> None:
        self.unhealthy: list[str] = []
        self.waits: list[str] = []
        self.problem: str | None = None
        self.reloads = 0

    def reload(self) -> str | None:
        """Count reloads."""
        self.reloads += 1
        return self.problem

    def pages(self, *, lifecycle: bool) -> Pages:
        """Return its pages."""
        site = Site(
            reports=three_models,
            unhealthy=lambda: self.unhealthy,
            health=lambda: Health(self.unhealthy, self.waits),
            now=lambda: NOW,
            version="1.2.3",
        )
        return standard_pages(
            site,
            metrics=lambda kind: Response(f"as {kind}\n".encode()),
            reload=self.reload if lifecycle else None,
            status=lambda: b"{}",
        )


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/metrics", METRICS, f"as {METRICS}\n".encode()),
        ("/-/healthy", "text/plain; charset=utf-8", b"cpcmon is healthy.\n"),
        ("/-/ready", "text/plain; charset=utf-8", b"cpcmon is ready.\n"),
        ("/api/v1/status", "application/json", b"{}"),
    ],
)
def test_each_page_has_its_content_type(serve: Serve, path: str, content_type: str, body: bytes) -> None:
    """Prometheus 3 refuses a scrape without the right one."""
    answer = serve(Daemon().pages(lifecycle=False)).ask(path)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, content_type, body)


_PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
_PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


def test_the_metrics_page_is_openmetrics_for_who_asks_for_it(serve: Serve) -> None:
    answer = serve(Daemon().pages(lifecycle=False)).ask("/metrics", accept=_PROMETHEUS_2)
    assert (answer.headers["content-type"], answer.headers["vary"]) == (OPENMETRICS, "Accept")
    assert answer.body == f"as {OPENMETRICS}\n".encode()


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("", METRICS),
        ("*/*", METRICS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", METRICS),
        (_PROMETHEUS_2, OPENMETRICS),
        (_PROMETHEUS_3, OPENMETRICS),
        ("Application/OpenMetrics-Text", OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", METRICS),
        ("application/openmetrics-text; version=1.0.0; q=0.3, text/plain; version=0.0.4; q=0.5", METRICS),
        ("application/openmetrics-text;q=0", METRICS),
        ("application/openmetrics-text;q=nan", METRICS),
        ("application/openmetrics-text;q=x,;=,", METRICS),
    ],
)
def test_openmetrics_is_chosen_where_it_is_asked_for_and_not_liked_less(accepted: str, expected: str) -> None:
    assert metrics_type(accepted) == expected


def test_health_and_readiness_report_problems(serve: Serve) -> None:
    daemon = Daemon()
    client = serve(daemon.pages(lifecycle=False))
    daemon.waits = ["starting", "density has not been evaluated yet"]
    assert client.ask("/-/healthy").status == 200
    ready = client.ask("/-/ready")
    assert (ready.status, ready.body) == (503, b"starting\ndensity has not been evaluated yet\n")
    daemon.unhealthy, daemon.waits = ["the scheduler is stopped"], []
    assert client.ask("/-/healthy").status == 503
    assert client.ask("/-/ready").status == 200


def test_the_liveness_probe_asks_for_nothing_that_may_hang(serve: Serve) -> None:
    """A stuck evaluation holds locks that the rest of the health needs."""

    def hangs() -> Health:
        raise AssertionError

    stuck = ["evaluation has made no progress for 400 seconds"]
    site = Site(reports=three_models, now=lambda: NOW, version="1.2.3", unhealthy=lambda: stuck, health=hangs)
    answer = serve(standard_pages(site, metrics=lambda _: Response(b""), reload=None, status=bytes)).ask("/-/healthy")
    assert (answer.status, answer.body) == (503, b"evaluation has made no progress for 400 seconds\n")


def test_reload_over_http_only_when_enabled(serve: Serve) -> None:
    daemon = Daemon()
    answer = serve(daemon.pages(lifecycle=False)).ask("/-/reload", "POST")
    assert answer.status == 403
    assert answer.body == b"lifecycle API is not enabled: start with --web.enable-lifecycle\n"
    assert daemon.reloads == 0


def test_reload_returns_the_problem(serve: Serve) -> None:
    """POST and PUT reload, GET does not."""
    daemon = Daemon()
    client = serve(daemon.pages(lifecycle=True))
    assert client.ask("/-/reload").status == 405
    assert client.ask("/-/reload").headers["allow"] == "POST, PUT"
    assert daemon.reloads == 0
    assert [client.ask("/-/reload", method).status for method in ("POST", "PUT")] == [200, 200]
    daemon.problem = "config.yaml:3: models: expected a list, found 5"
    answer = client.ask("/-/reload", "POST")
    assert (answer.status, answer.body) == (500, b"config.yaml:3: models: expected a list, found 5\n")
    assert daemon.reloads == 3


def test_commands_only_when_enabled_and_not_from_a_browser(serve: Serve) -> None:
    """By POST; the daemon gets the body, and its status and sentence are the answer."""
    bodies: list[bytes] = []

    def command(body: bytes) -> tuple[HTTPStatus, str]:
        bodies.append(body)
        return HTTPStatus.CONFLICT, "not now"

    site = Site(reports=three_models, unhealthy=list, health=lambda: Health([], []), now=lambda: NOW, version="1.2.3")
    pages = [
        standard_pages(site, metrics=lambda _: Response(b""), reload=None, status=bytes, command=one)
        for one in (None, command)
    ]
    assert serve(pages[0]).ask("/-/command", "POST", body=b"{}").status == 403
    client = serve(pages[1])
    assert [client.ask("/-/command", method).status for method in ("GET", "PUT")] == [405, 405]
    assert client.ask("/-/command", "POST", body=b"{}", Origin="null").status == 403
    assert client.ask("/-/command", "POST", body=b"x" * 4097).status == 413
    assert not bodies
    answer = client.ask("/-/command", "POST", body=b'{"command": 1}')
    assert (answer.status, answer.body, bodies) == (409, b"not now\n", [b'{"command": 1}'])


def test_the_overview_has_the_csp_and_escapes_problems(serve: Serve) -> None:
    daemon = Daemon()
    daemon.unhealthy = ["the scheduler is <stopped>"]
    answer = serve(daemon.pages(lifecycle=False)).ask("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == CSP
    assert b"the scheduler is &lt;stopped&gt;" in answer.body
    assert b"1.2.3" in answer.body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9877"])
def test_a_browser_cannot_reload(serve: Serve, origin: str) -> None:
    """Any web page on this machine could otherwise trigger it."""
    daemon = Daemon()
    answer = serve(daemon.pages(lifecycle=True)).ask("/-/reload", "POST", Origin=origin)
    assert (answer.status, daemon.reloads) == (403, 0)
    assert answer.body.startswith(b"reload: expected a request without Origin, found one from a browser")


def test_the_address_for_probes_gives_no_reasons_and_no_data(serve: Serve, site: Site) -> None:
    """Everybody may ask it."""
    ill = replace(site, unhealthy=lambda: ["source ZZPATIENT hangs"])
    client = serve(probe_pages(ill))
    answer = client.ask("/-/healthy")
    assert (answer.status, answer.body) == (503, b"no\n")
    assert {client.ask(path).status for path in ("/", "/metrics", "/api/v1/status", "/-/reload")} == {404}
    assert serve(probe_pages(site)).ask("/-/healthy").status == 200
