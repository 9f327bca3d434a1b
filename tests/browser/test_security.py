"""Hostile names do nothing, with the CSP off so that only the escaping protects; and pages behind TLS and a password.

Names of models, sources, alerts and segments cannot contain markup: see tests/config and tests/records. Classes, versions,
paths, runbook addresses and queries can.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import bcrypt
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visiting
from tests.browser.site import HEALTHY, prepare, reference
from tests.browser.visiting import PAGES, visiting
from tests.daemon.process import Process, running, write_records
from tests.servers import real_server
from tests.web.certificates import Authority

pytestmark = pytest.mark.slow

_SCRIPT = "<script>window.hacked=1</script>"
_IMAGE = '"><img src=x onerror=window.hacked=1>'
_QUOTE = "' onmouseover=window.hacked=1 x='</td></svg>"
_CONFIG = """\
storage: {path: state}
sources:
  - {name: results, type: directory, path: 'in"><img src=x onerror=window.hacked=1>', poll: 0.2s}
  - {name: pathology, type: directory, path: labels, poll: 0.2s, carries: labels}
models:
  - name: density
    reference: '<script>window.hacked=1<x>.ref'
    window: {records: 400}
    segment_by: [[site]]
    evaluate: {every: 1s}
    minimum_records: 30
    alerts:
      - {name: accuracy_low, below: 0.999, for: 0s, on: lower, new_records: 0}
  - name: nodule
    reference: nodule.ref
    evaluate: {every: 1s}
    minimum_records: 30
  - name: quiet
links: {runbooks: "https://example.org/'onerror=window.hacked=1"}
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A daemon with hostile values wherever markup is possible."""
    real_server("chromium")
    folder = tmp_path_factory.mktemp("hostile")
    named = replace(reference(), version=_SCRIPT, classes=(_SCRIPT, _IMAGE, _QUOTE))
    named.save(folder / "<script>window.hacked=1<x>.ref")
    inbox = folder / 'in"><img src=x onerror=window.hacked=1>'
    inbox.mkdir()
    (folder / "labels").mkdir()
    replace(named, model="nodule").save(folder / "nodule.ref")
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    write_records(inbox / f"{_IMAGE}.jsonl", HEALTHY.vectors[:100], model="density", site="North", version=_SCRIPT)
    write_records(inbox / "hostile.jsonl", HEALTHY.vectors[:5], model=_IMAGE, site="North")
    write_records(inbox / "hostile.jsonl", HEALTHY.vectors[5:9], model="density", site=_SCRIPT)
    for number, name in enumerate(named.classes):
        write_records(
            inbox / "hostile.jsonl", HEALTHY.vectors[:1], model="nodule", id=f"{name}{number}", version=_SCRIPT
        )
        write_records(folder / "labels" / "hostile.jsonl", [()], model="nodule", id=f"{name}{number}", label=name)
    with running(folder / "config.yaml") as process:
        # Records with a hostile segment are rejected.
        process.wait_for('cpcmon_window_records{model="density",segment="all"}', 100.0)
        yield process


def test_hostile_names_are_shown_as_text(hostile: Process, browser: Browser) -> None:
    with visiting(browser, hostile.url, bypass_csp=True) as one:
        for name, path in PAGES.items():
            page = one.go(path)
            before = page.locator("#as-of").inner_text()
            # The script inserts updates.
            expect(page.locator("#as-of")).not_to_have_text(before)
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.evaluate(_TOUCH)
            assert page.evaluate("window.hacked === undefined"), name
            assert page.locator("main script, main img, [onerror], [onmouseover]").count() == 0, name
        page = one.go(PAGES["reference"])
        for text in (_SCRIPT, _IMAGE, _QUOTE):
            expect(page.get_by_text(text).first).to_be_visible()
        expect(one.go(PAGES["labels"]).locator("#labels").get_by_text(_SCRIPT)).to_be_visible()
        page = one.go(PAGES["configuration"])
        expect(page.get_by_text("window.hacked").first).to_be_visible()
        assert one.log.complaints == []
        assert [url for url in one.log.requests if not url.startswith(hostile.url)] == []


_TOUCH = """document.querySelectorAll("body *").forEach(one => one.dispatchEvent(new MouseEvent("mouseover")))"""


def test_client_input_is_not_echoed(hostile: Process, browser: Browser) -> None:
    with visiting(browser, hostile.url, bypass_csp=True) as one:
        for path in ("/model?name=", "/reference?name=", "/model?name=density&segment=", "/nowhere/"):
            for word in (_SCRIPT, _IMAGE):
                page = one.go(path + quote(word))
                assert page.evaluate("window.hacked === undefined")
                assert "hacked" not in page.content()
        assert {error.partition(" for ")[0] for error in one.log.complaints if " for " in error} == {"404"}


_CREDENTIALS = {"username": "alice", "password": "wonder:land"}


def write_web_config(folder: Path) -> Path:
    """Write a web configuration with a password and a self-signed certificate."""
    pair = Authority(folder, "unknown").signed("server")
    hashed = bcrypt.hashpw(_CREDENTIALS["password"].encode(), bcrypt.gensalt(4)).decode()
    path = folder / "web.yml"
    path.write_text(
        f"tls_server_config: {{cert_file: {pair.cert.name}, key_file: {pair.key.name}}}\n"
        f"basic_auth_users: {{{_CREDENTIALS['username']}: {hashed}}}\n"
    )
    return path


def test_behind_tls_and_a_password_every_page_loads_and_stays_live(
    tmp_path: Path, visit: Visiting, browser: Browser
) -> None:
    web = write_web_config(tmp_path)
    prepare(tmp_path / "site")
    with running(tmp_path / "site" / "config.yaml", "--web.config.file", str(web)) as process:
        url = process.url
        assert url.startswith("https://")
        with visiting(browser, url, ignore_https_errors=True) as stranger:
            answer = stranger.page.request.get(f"{url}/api/v1/status")
            assert answer.status == 401
            assert "density" not in answer.text()
        one = visit(url, ignore_https_errors=True, http_credentials=_CREDENTIALS)
        for path in PAGES.values():
            expect(one.go(path).locator("main h1")).to_be_visible()
        stays_live(one.go("/"))
        # The browser first tries without the password.
        one.log.complaints[:] = [error for error in one.log.complaints if "401" not in error]


def stays_live(page: Page) -> None:
    """Check that a page refreshes."""
    before = page.locator("#as-of").inner_text()
    expect(page.locator("#as-of")).not_to_have_text(before)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
