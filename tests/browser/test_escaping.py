"""Hostile names do nothing, with the CSP off so that only the escaping protects.

Names of models, sources, alerts and segments cannot contain markup: see tests/config and tests/records. Classes, versions,
paths, runbook addresses and queries can.
"""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from monitor.reference.reference import Reference
from tests.browser.site import HEALTHY
from tests.browser.visiting import PAGES, visiting
from tests.daemon.process import Process, running, write_records
from tests.servers import real_server
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

_SCRIPT = "<script>window.hacked=1</script>"
_IMAGE = '"><img src=x onerror=window.hacked=1>'
_QUOTE = "' onmouseover=window.hacked=1 x='</td></svg>"
_CONFIG = """\
storage: {path: state}
sources:
  - {name: results, type: directory, path: 'in"><img src=x onerror=window.hacked=1>', poll: 0.2s}
models:
  - name: density
    reference: '<script>window.hacked=1<x>.ref'
    window: {records: 400}
    segment_by: [[site]]
    evaluate: {every: 1s}
    minimum_records: 30
    alerts:
      - {name: accuracy_low, below: 0.999, for: 0s, on: lower, new_records: 0}
  - name: quiet
runbooks: 'https://example.org/"><img src=x onerror=window.hacked=1>/'
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A daemon with hostile values wherever markup is possible."""
    real_server("chromium")
    folder = tmp_path_factory.mktemp("hostile")
    vectors, labels = synthetic(600, 3, seed=1, sharpness=2.6)
    reference = Reference.calibrate(
        vectors, labels, model="density", version=_SCRIPT, classes=(_SCRIPT, _IMAGE, _QUOTE)
    )
    reference.save(folder / "<script>window.hacked=1<x>.ref")
    inbox = folder / 'in"><img src=x onerror=window.hacked=1>'
    inbox.mkdir()
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    write_records(inbox / f"{_IMAGE}.jsonl", HEALTHY.vectors[:100], model="density", site="North", version=_SCRIPT)
    write_records(inbox / "hostile.jsonl", HEALTHY.vectors[:5], model=_IMAGE, site="North")
    write_records(inbox / "hostile.jsonl", HEALTHY.vectors[5:9], model="density", site=_SCRIPT)
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
        page = one.go(PAGES["configuration"])
        expect(page.get_by_text("window.hacked").first).to_be_visible()
        assert one.log.complaints == []
        assert [url for url in one.log.requests if not url.startswith(hostile.url)] == []


_TOUCH = """document.querySelectorAll("body *").forEach(one => one.dispatchEvent(new MouseEvent("mouseover")))"""


@pytest.mark.parametrize("path", ["/model?name=", "/reference?name=", "/model?name=density&segment=", "/nowhere/"])
def test_client_input_is_not_echoed(hostile: Process, browser: Browser, path: str) -> None:
    with visiting(browser, hostile.url, bypass_csp=True) as one:
        for word in (_SCRIPT, _IMAGE):
            page = one.go(path + quote(word))
            assert page.evaluate("window.hacked === undefined")
            assert "hacked" not in page.content()
        assert {error.partition(" for ")[0] for error in one.log.complaints if " for " in error} == {"404"}
