"""Names that are programs do nothing, wherever they come from; the browser's own guard is off, so that only ours is tried.

Names of models, sources, alerts and segments cannot hold such letters at all: tests/config and tests/records show it.
What is left is free: classes, versions, paths, addresses of runbooks, and whatever a client asks for.
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
    """A daemon in which everything that may be named freely is named to do harm."""
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
    write_records(inbox / "odd.jsonl", HEALTHY.vectors[:5], model=_IMAGE, site="North")
    write_records(inbox / "odd.jsonl", HEALTHY.vectors[5:9], model="density", site=_SCRIPT)
    with running(folder / "config.yaml") as process:
        # Those of a segment that nobody may be called are refused.
        process.wait_for('cpcmon_window_records{model="density",segment="all"}', 100.0)
        yield process


def test_names_that_are_programs_are_shown_as_they_are_and_do_nothing(hostile: Process, browser: Browser) -> None:
    with visiting(browser, hostile.url, bypass_csp=True) as one:
        for name, path in PAGES.items():
            page = one.go(path)
            before = page.locator("#as-of").inner_text()
            # What comes with an update is put in by a script.
            expect(page.locator("#as-of")).not_to_have_text(before)
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.evaluate(_TOUCH)
            assert page.evaluate("window.hacked === undefined"), name
            assert page.locator("main script, main img, [onerror], [onmouseover]").count() == 0, name
        page = one.go(PAGES["reference"])
        for told in (_SCRIPT, _IMAGE, _QUOTE):
            expect(page.get_by_text(told).first).to_be_visible()
        page = one.go(PAGES["configuration"])
        expect(page.get_by_text("window.hacked").first).to_be_visible()
        assert one.heard.complaints == []
        assert [url for url in one.heard.asked if not url.startswith(hostile.url)] == []


_TOUCH = """document.querySelectorAll("body *").forEach(one => one.dispatchEvent(new MouseEvent("mouseover")))"""


@pytest.mark.parametrize("path", ["/model?name=", "/reference?name=", "/model?name=density&segment=", "/nowhere/"])
def test_what_somebody_asks_for_is_not_repeated(hostile: Process, browser: Browser, path: str) -> None:
    with visiting(browser, hostile.url, bypass_csp=True) as one:
        for word in (_SCRIPT, _IMAGE):
            page = one.go(path + quote(word))
            assert page.evaluate("window.hacked === undefined")
            assert "hacked" not in page.content()
        assert {told.partition(" for ")[0] for told in one.heard.complaints if " for " in told} == {"404"}
