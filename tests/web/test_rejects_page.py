"""The rejects page: counts, reasons, pointers, never the content of a record."""

from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.web.pages.other_pages import MOST_POINTERS, rejects_page
from monitor.web.pages.rendering import ENVIRONMENT
from monitor.web.site import Rejects
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW

LINE = (NOW - 90.0, "inbox", "file#3fa2c81b", Pointer(Reason.BAD_SUM, 1017, 123_456, 210, "9f86d081", "probs: list[4]"))
MESSAGE = (NOW - 5.0, "topic", "predictions/3", Pointer(Reason.BAD_JSON, 1, 77, 12))


def test_every_reason_is_explained() -> None:
    texts = vars(ENVIRONMENT.get_template("reasons.html").module)
    assert set(texts["reasons"]) == set(Reason)


def test_an_unknown_reason_is_shown() -> None:
    """Of an older or newer version."""
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects({("inbox", "retired"): 3}))))
    assert page.rows[1][:3] == ["inbox", "retired", "3"]
    assert "does not know the reason" in page.rows[1][3]


def test_counts_by_source_and_reason_most_frequent_first() -> None:
    counts = {("inbox", "bad_json"): 3, ("inbox", "bad_sum"): 1200, ("topic", "bad_json"): 7, ("topic", "empty"): 0}
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects(counts))))
    assert [row[:3] for row in page.rows[1:]] == [
        ["inbox", "bad_sum", "1,200"], ["topic", "bad_json", "7"], ["inbox", "bad_json", "3"]
    ]  # fmt: skip
    assert "sum to 1" in page.rows[1][3]


def test_pointers_to_the_latest_records() -> None:
    """Offsets without separators; unknown values as none."""
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects({}, [MESSAGE, LINE]))))
    message, line = page.rows[-2:]
    assert line == [
        "2025-11-16 13:31:50 UTC 1 minute ago", "inbox", "file#3fa2c81b", "bad_sum", "1017", "123456", "210",
        "9f86d081", "probs: list[4]",
    ]  # fmt: skip
    assert message[2:] == ["predictions/3", "bad_json", "1", "77", "12", "none", "none"]


def test_too_many_pointers_are_cut_and_counted() -> None:
    text = text_of(rejects_page, site_of(rejects=lambda: Rejects({}, [LINE] * (MOST_POINTERS + 7))))
    assert len(Reader(text).rows) == MOST_POINTERS + 1
    assert "… and 7 more." in text
