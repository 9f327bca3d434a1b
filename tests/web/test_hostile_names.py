"""Hostile names of models, segments, classes, sources and settings stay text."""

from dataclasses import replace

import pytest

from monitor.core.alerts import AlertPhase
from monitor.core.estimate import WindowState
from monitor.core.report import InputFacts
from monitor.evaluation.alert_history import Transition
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.settings.kinds import Setting
from monitor.sources.base import SourceStatus
from monitor.web.pages.rendering import MARK
from monitor.web.pages.routes import standard_pages
from monitor.web.server.request import HTML, Request, Response
from monitor.web.site import Rejects, Site, SourceView
from tests.web.reading import Reader, site_of
from tests.web.sample_reports import NOW, estimated, low, segment, three_models

EVIL = [
    "<script>alert(1)</script>",
    '"onmouseover="alert(1)" x="',
    "'onfocus='alert(1)' autofocus='",
    "</title></main><img src=x onerror=alert(1)>",
    "javascript:alert(1)//&lt;<!--",
    "<svg/onload=alert(1)>",
]  # fmt: skip


def _site(evil: str) -> Site:
    report = three_models()["density"]
    assert report.reference is not None
    names = replace(report.reference, version=evil, fingerprint=evil, created=evil, classes=(evil, f"{evil}2"))
    hostile = replace(
        report,
        model=evil,
        reference=names,
        segments=(
            segment(evil, WindowState.OK, estimated(0.7), replace(low(AlertPhase.FIRING, 0.72), alert=evil)),
            segment(f"{evil}2", WindowState.STALE, None, replace(low(AlertPhase.PENDING), alert=evil)),
        ),
        input=InputFacts(hints=(evil,)),
        errors={evil: 3},
    )
    return site_of(
        {evil: hostile},
        version=evil,
        problems=[evil],
        waits=[f"{evil}3 has not been evaluated yet", evil],
        sources=lambda: [SourceView(SourceStatus(evil, evil, waits), rejected=3) for waits in (evil, None)],
        alert_rows=lambda: {evil: (Transition(NOW - 60.0, evil, evil, AlertPhase.FIRING, AlertPhase.OK, NOW - 120.0),)},
        rejects=lambda: Rejects(
            {(evil, evil): 3}, [(NOW, evil, evil, Pointer(Reason.BAD_SUM, 1, digest=evil, shape=evil, expected=evil))]
        ),
        settings=lambda: [Setting("models[0].name", evil, 1), Setting(evil, evil, None), Setting(f"m.{evil}", evil, 2)],
    )


@pytest.mark.parametrize("evil", EVIL)
def test_no_name_becomes_markup_on_any_page(evil: str) -> None:
    """Finds every HTML page by its content type."""
    pages = standard_pages(_site(evil), metrics=lambda _: Response(b""), reload=None, status=bytes)
    read = []
    for path, page in pages.items():
        if "GET" not in page.methods:
            continue
        answer = page.answer(Request("GET", path, query={"name": evil, "segment": f"site={evil}"}))
        if answer.content_type != HTML:
            continue
        read.append(path)
        tags = Reader(answer.body.decode()).tags
        assert [tag.get("src") for name, tag in tags if name == "script"] == [f"/static/cpcmon.js?v={MARK}"], path
        assert not [name for name, _ in tags if name in {"img", "iframe", "object", "style", "base", "form"}], path
        attributes = {name for _, tag in tags for name in tag}
        assert not {name for name in attributes if name.startswith("on") or name in {"style", "autofocus"}}, path
        assert all(str(tag["href"]).startswith(("/", "#")) for _, tag in tags if "href" in tag), path
    assert {"/", "/rejects", "/configuration"} <= set(read)
