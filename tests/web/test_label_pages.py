"""What pages say of labels: the audited accuracy first, labelled cases as such, and never all-clear against labels."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from monitor.core.alerts import AlertPhase
from monitor.core.baselines.comparison import Baseline, BaselineKind, Verdict
from monitor.core.estimate import AUDITED as BY_AUDIT
from monitor.core.estimate import Interval, WindowState
from monitor.core.labels.realised import (
    AuditedAccuracy,
    RealisedAccuracy,
    RealisedClass,
    ScopeLabels,
    SegmentLabels,
)
from monitor.core.labels.track_record import TrackRecord
from monitor.core.report import Report, SegmentReport
from monitor.web.pages.from_labels import doubt_words
from monitor.web.pages.model import model_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.status import Urgency, compared_of, overall_status, urgency_of
from monitor.web.pages.wording import alert_words, period
from monitor.web.site import Health
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, estimated, low, segment, three_models
from tests.web.sample_site import AUDITED, AUDITED_SITES, audited_report, sample_site, track_record

DAY = 86400.0
HOSTILE = "<script>alert('x')</script>\"&"
REALISED = RealisedAccuracy(0.71, 0.66, 0.76, 500)
AUDIT = AuditedAccuracy(
    0.812, 0.789, 0.835, 412, 20_600, 420, powered=True, began_at=NOW - 35 * DAY, ended_at=NOW - 8 * DAY
)
NOTHING = ScopeLabels(1234, 0, None, None)
FROM = "412 labels of 20,600 records, 12 Oct to 8 Nov"


def labelled(audit: AuditedAccuracy | None = AUDIT, **changes: object) -> SegmentLabels:
    """What labels say of a window."""
    found = SegmentLabels(
        ScopeLabels(5000, 0, None, None), ScopeLabels(20_600, 500, REALISED, audit), NOW - 8 * DAY, 4.2 * DAY
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def window(labels: SegmentLabels | None = None, record: TrackRecord | None = None) -> SegmentReport:
    """A window whose estimate holds, and whose alert is quiet."""
    baseline = Baseline(BaselineKind.REFERENCE, 0.93, 2000, 2000, None, None, verified=True)
    one = segment(None, WindowState.OK, estimated(0.934, 0.008), low(AlertPhase.OK))
    return replace(one, baseline=baseline, verdict=Verdict.HOLDS, labels=labels, track_record=record)


def report_of(*windows: SegmentReport) -> Report:
    """The report of a model with these windows."""
    return replace(three_models()["triage"], segments=windows)


def read(page: object, report: Report, **query: str) -> str:
    """Return the words of a page."""
    text = text_of(page, site_of({report.model: report}), **query)  # type: ignore[arg-type]
    Reader(text)
    return " ".join(re.sub("<[^>]+>", " ", text).split()).replace(" .", ".").replace(" ,", ",")


def read_both(one: SegmentReport) -> tuple[str, str]:
    """Return the words of the page of a window, and of the overview."""
    report = report_of(one)
    return read(model_page, report, name=report.model), read(overview_page, report)


def test_the_audited_accuracy_comes_first_with_what_it_rests_on() -> None:
    page, overview = read_both(window(labelled()))
    said = page.index(f"Audited accuracy 81.2% (78.9% to 83.5%), from {FROM}.")
    assert said < page.index("The estimate holds") < page.index("About 93.4% of the predictions are correct")
    assert "The audit is about 12 Oct to 8 Nov, the estimate about the window now." in page
    assert page.index("Audited accuracy 81.2% 78.9% to 83.5%, from 412 labels") < page.index("Estimated accuracy 93.4%")
    assert f"81.2% audited 78.9% to 83.5%, from {FROM} 93.4% estimated now" in overview
    assert "audited 81.2%, its interval 78.9% to 83.5%" in text_of(
        overview_page, site_of({"a": report_of(window(labelled()))})
    )


@pytest.mark.parametrize(("picked", "warnings"), [(420, 0), (457, 0), (458, 1), (580, 1)])
def test_missing_labels_of_audited_records_are_warned_of_under_ninety_per_cent(picked: int, warnings: int) -> None:
    for text in read_both(window(labelled(AUDIT._replace(picked=picked)))):
        assert ("of audited records came: those that are missing may differ." in text) == warnings
    page, _ = read_both(window(labelled(AUDIT._replace(picked=580))))
    assert "Labels of 71.0% of audited records came: those that are missing may differ." in page


def test_labelled_cases_are_never_shown_as_the_accuracy() -> None:
    page, overview = read_both(window(labelled(None)))
    assert "Accuracy of labelled cases 71.0% 66.0% to 76.0%, 500 labelled cases" in page
    assert "usually a biased choice" in page
    assert "There is no audit, so no number here speaks for all records." in page
    assert "Labelled 2.4% 500 of 20,600 predictions" in page
    assert "From prediction to label 4 days" in page
    assert "71.0%" not in overview
    assert "audited" not in overview
    head = page[: page.index("What labels say")]
    assert "71.0%" not in head


def test_a_class_of_few_labelled_cases_has_no_number() -> None:
    share = RealisedAccuracy(0.9, 0.683, 0.988, 20)
    classes = RealisedClass(20, 4, share, None), RealisedClass(3, 20, None, share)
    page, _ = read_both(window(labelled(classes=classes)))
    assert "benign 20 90.0% 68.3% to 98.8% 4 too few cases malignant 3 too few cases 20 90.0% 68.3% to 98.8%" in page


def test_hostile_names_of_labelled_classes_are_escaped() -> None:
    share = RealisedAccuracy(0.9, 0.683, 0.988, 20)
    report = report_of(window(labelled(classes=(RealisedClass(20, 4, share, None),) * 2)))
    assert report.reference is not None
    report = replace(report, reference=replace(report.reference, classes=(HOSTILE, "b")))
    text = text_of(model_page, site_of({report.model: report}), name=report.model)
    assert "&lt;script&gt;alert(" in text
    assert "<script>alert" not in text
    Reader(text)


def test_before_labels_come_the_page_says_what_waits() -> None:
    page, overview = read_both(window(labelled(horizon=NOTHING, newest_at=None, delay_seconds=None), TrackRecord()))
    assert "No labels came so far; 1,234 predictions wait." in page
    assert "No block is complete yet." in page
    assert "audited" not in overview
    page, _ = read_both(window(labelled(), track_record([None, 0.8, 0.9, None, None], labels=29)))
    assert (
        "No block is judged yet: one needs 30 labels, and nearly all that are to come (2 of 5 blocks have some)."
        in page
    )


def test_the_track_record_names_the_best_estimator() -> None:
    page, _ = read_both(window(labelled(), track_record([0.86, 0.88, None, 0.85])))
    assert "3 blocks judged. Best here: adaptive, off by 1." in page
    rows = Reader(
        text_of(model_page, site_of({"triage": report_of(window(labelled(), track_record([0.8, 0.8])))}), name="triage")
    ).rows
    found = {row[0]: row[1:] for row in rows if row and row[0].split()[0] in {"adaptive", "doc_ts", "ac_ts"}}
    assert found["ac_ts"] == ["11.0", "none", "2"]
    assert found["doc_ts"] == ["5.8", "50.0%", "2"]
    assert [name.split()[0] for name in found] == ["doc_ts", "adaptive", "ac_ts"]


@pytest.mark.parametrize(("audited", "labels"), [(True, 180), (False, 1900)])
def test_labels_that_disagree_take_the_all_clear(*, audited: bool, labels: int) -> None:
    """On the page of the window, in its row, in its status, and in the sentence about everything."""
    said = "Labels of 4 to 8 Nov say 71.0% (65.0% to 76.0%), the estimates said 86.2%: do not rely on them."
    fine, chosen, doubted = (
        window(labelled(), track_record([0.87, 0.86])),
        window(labelled(), track_record([0.87, 0.71], audited=False)),
        window(labelled(), track_record([0.87, 0.71], audited=audited, labels=labels)),
    )
    # Labels of cases that somebody chose do not speak for all records.
    for one in (fine, chosen):
        assert (urgency_of(one), doubt_words(one, NOW)) == (Urgency.FINE, "")
    assert (urgency_of(doubted), doubt_words(doubted, NOW)) == (Urgency.DOUBTED, said)
    for text in read_both(doubted):
        assert said in text
        assert "The estimate holds" not in text
        assert "✓ No alert" not in text
        assert "✗" in text
    page, overview = read_both(doubted)
    assert page.index(said) < page.index("Audited accuracy")
    assert f"{said} What to do: runbook docs/runbooks/estimates_wrong.md" in page
    assert "No alert fires, but labels disagree with the estimates of 1 window: this is no all-clear." in overview
    found = overall_status({"triage": report_of(doubted)}, Health())
    assert found.sentence == ("No alert, but 1 window has labels that disagree with its estimates. 1 window evaluated.")
    assert found.urgency is Urgency.DOUBTED
    assert "The estimate holds" in read_both(fine)[1]


def test_an_alert_on_the_audited_accuracy_is_said_as_such() -> None:
    one = replace(low(AlertPhase.FIRING, AUDIT.upper), estimator=BY_AUDIT, threshold=0.9)
    found = replace(window(labelled()), alerts=(one,), field=(Interval(0.5, AUDIT.upper),))
    said = "upper end of the audited accuracy, 83.5%, is under the threshold of 90.0%"
    assert said in alert_words(one, compared_of(one, found), NOW, found.field)
    for text in read_both(found):
        assert said in text


def test_counts_of_labels_are_those_of_the_model() -> None:
    site = sample_site({AUDITED: audited_report()})
    for name in AUDITED_SITES:
        text = text_of(model_page, site, name=AUDITED, segment=f"site={name}")
        assert (
            "1,234 labels held, 1,200 predictions with a label, 34 labels without a prediction here when they came."
            in text
        )


def test_a_model_without_labels_shows_nothing_of_them() -> None:
    for text in read_both(window()):
        assert not re.search(r"audit|labelled cases|track record|What labels say", text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("began", "ended", "shown"),
    [
        ("2026-10-12T08:00", "2026-11-08T09:00", "12 Oct to 8 Nov"),
        ("2026-05-01T00:00", "2026-05-14T23:00", "1 to 14 May"),
        ("2026-05-04T08:05", "2026-05-04T11:30", "4 May, 08:05 to 11:30 UTC"),
        ("2026-05-04T22:00", "2026-05-05T06:00", "4 May 22:00 to 5 May 06:00 UTC"),
        ("2025-12-30T00:00", "2026-01-09T00:00", "30 Dec 2025 to 9 Jan 2026"),
        ("2025-05-01T00:00", "2025-05-14T00:00", "1 to 14 May 2025"),
    ],
)
def test_a_period_is_as_short_as_it_can_be(began: str, ended: str, shown: str) -> None:
    first, last, now = (
        datetime.fromisoformat(one).replace(tzinfo=UTC).timestamp() for one in (began, ended, "2026-11-18T00:00")
    )
    assert period(first, last, now) == shown


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e30, -1e30])
def test_impossible_times_of_records_break_no_page(at: float) -> None:
    record = track_record([0.87])
    broken = record.add(replace(record[0], began_at=max(at, record[0].ended_at), ended_at=at))
    for text in read_both(window(labelled(AUDIT._replace(began_at=at, ended_at=at), newest_at=at), broken)):
        assert "an impossible time" in text
